"""`quire`: the commands, their exit codes and errors."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

import quire
from quire.cli.console import say
from quire.cli.demo import demo
from quire.cli.inspect_rows import inspect
from quire.cli.pack import pack, replan
from quire.cli.plan import plan
from quire.cli.report import report
from quire.cli.stream import stream
from quire.cli.verify import verify
from quire.cli.verify_model import verify_model
from quire.errors import QuireError
from quire.printable import printable

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


class _Command(TyperCommand):
    """A command whose ``--help`` lists its options by group."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer's own
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            group = getattr(parameter, "rich_help_panel", None) or kind
            if record := parameter.get_help_record(ctx):
                groups.setdefault(group, []).append(record)
        for group, records in groups.items():
            with formatter.section(group):
                formatter.write_dl(records)


@contextmanager
def _endings() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    except (BrokenPipeError, SystemExit) as ending:
        if getattr(ending, "code", 1) != 1:  # rich exits with 1 when the output pipe is closed
            raise
        # Otherwise Python complains when it flushes the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except EOFError as error:
        raise QuireError(f"a file ends too early: {error}") from error


app = typer.Typer(
    cls=_Commands,
    help="Pack variable-length documents into fixed-length training sequences.",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its tables cut the names of long options in 80 columns
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
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


for _command in (demo, inspect, pack, plan, replan, report, stream, verify, verify_model):
    # verify itself says what to write instead of a second argument.
    _settings = {"allow_extra_args": _command is verify}
    app.command(cls=_Command, context_settings=_settings)(_command)


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
