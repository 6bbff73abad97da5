"""`quire`: the commands, their exit codes and errors."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup
from typer.main import get_command as get_command_of

import quire
from quire.cli.console import say, saying_what_is_logged
from quire.cli.help_pages import HelpPage
from quire.cli.progress import stage_line
from quire.errors import QuireError, unknown_name
from quire.options.names import command_words
from quire.printable import printable
from quire.progress import shown_by

COMMANDS = {
    "demo": ("demo", "Plan and pack the sources of the Python standard library."),
    "plan": ("plan", "Compare strategies and row lengths before packing."),
    "pack": ("pack", "Pack a corpus into rows: parquet shards and a manifest."),
    "replan": ("pack", "Add another plan to a corpus packed with --index-only."),
    "verify": ("verify", "Check a packed dataset against its manifest and inputs."),
    "inspect": ("inspect_rows", "Show packed rows, every document in its own color."),
    "report": ("report", "Write an HTML page about a packed dataset."),
    "export": ("export", "Write packed rows as another trainer reads them."),
    "stream": ("stream", "Stream packed batches; show throughput and utilization."),
    "verify-model": ("verify_model", "Prove that a model keeps packed documents apart."),
    "bench-model": ("bench_model", "Measure tokens per second, padded and packed."),
}
"""The module of each command and what it does, in the order in which they are used.

A module is imported when its command is named, so that --help and --version answer at once.
"""
_EXIT_CODES = (
    "Exit codes: 0 success; 1 only from verify, verify-model and demo: the output is damaged, or "
    "isolation is not proven; 2 any error; 130 or 143 interrupted; 141 the output pipe was closed."
)


class _Commands(TyperGroup):
    """Keep exit code 1, which typer and click also use for other things, for verdicts."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - typer's own
        with _endings():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer's own
        with _endings():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer's own
        """All names, in the order of use."""
        del ctx
        return [*COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer's own
        """A command, imported now; None if there is none of this name."""
        del ctx
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer's own
        """The command that is named; typer suggests none, as it knows none before its import."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(str(unknown_name("command", args[0], COMMANDS)))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands, in the order of use"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@cache
def _command(name: str) -> Any:  # noqa: ANN401 - typer's own
    module = import_module(f"quire.cli.{COMMANDS[name][0]}")
    function = getattr(module, name.replace("-", "_"))
    one = typer.Typer(**_LOOKS)
    # verify itself says what to write instead of a second argument.
    settings = {**_SETTINGS, "allow_extra_args": name == "verify"}
    one.command(name, cls=HelpPage, context_settings=settings)(function)
    found = get_command_of(one)
    found.name = name
    return found


@contextmanager
def _endings() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say("stopped; nothing was left half written: run the same command again", to_stderr=True)
        sys.exit(130)
    except (BrokenPipeError, SystemExit) as ending:
        if getattr(ending, "code", 1) != 1:  # rich exits with 1 when the output pipe is closed
            raise
        # Otherwise Python complains when it flushes the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except EOFError as error:
        raise QuireError(f"a file ends too early: {error}") from error
    except typer.BadParameter as error:
        error.message = _with_value(error)
        raise


def _with_value(error: typer.BadParameter) -> str:
    """The message about an option, with the value that was given, which pydantic leaves out."""
    found: list[Any] = getattr(error.__cause__, "errors", list)()
    if not found:
        return error.message
    value, should = repr(found[0]["input"]), error.message.removeprefix("Value error, ")
    return should if value in should else f"{value}; {should[:1].lower()}{should[1:]}"


_SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
}
_LOOKS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # its tables cut the names of long options in 80 columns
}
app = typer.Typer(
    cls=_Commands,
    help="Pack variable-length documents into fixed-length training sequences.",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    context_settings=_SETTINGS,
    **{**_LOOKS, "add_completion": True},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"quire {quire.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    del debug  # `main` finds it anywhere in the arguments, before anything is parsed


def main() -> None:
    """Run the command line.

    An error that quire raises on purpose is printed as one line, any other with its traceback; both
    exit with code 2.
    """
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            # Escape characters that the terminal's encoding lacks instead of failing.
            output.reconfigure(errors="backslashreplace")
    debug = "--debug" in sys.argv
    try:
        with command_words(), saying_what_is_logged(), shown_by(stage_line):
            app(args=[word for word in sys.argv[1:] if word != "--debug"])
    except QuireError as error:
        if debug:
            traceback.print_exc()
        else:
            _print_error(str(error))
        sys.exit(2)
    except Exception as error:  # a bug in quire or in a package that it calls
        traceback.print_exc()
        _print_error(f"unexpected {type(error).__name__}; please report it with the lines above")
        sys.exit(2)


def _print_error(text: str) -> None:
    say(Text.assemble(("error", "bold red"), " ", printable(text)), to_stderr=True)
