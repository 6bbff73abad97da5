"""`quire`: the commands, and what they share."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer
from rich.console import Console

import quire
from quire.cli.demo import demo
from quire.cli.inspect_rows import inspect
from quire.cli.pack import pack
from quire.cli.plan import plan
from quire.cli.replan import replan
from quire.cli.report import report
from quire.cli.stream import stream
from quire.cli.verify import verify
from quire.cli.verify_model import verify_model
from quire.errors import QuireError
from quire.printable import printable

app = typer.Typer(
    help="Pack variable-length documents into fixed-length training sequences.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    del debug  # `main` reads it wherever it stands, before anything is parsed


app.command()(demo)
app.command()(inspect)
app.command()(pack)
app.command()(plan)
app.command()(replan)
app.command()(report)
app.command()(stream)
app.command(context_settings={"allow_extra_args": True})(verify)  # it says what to write instead
app.command()(verify_model)


def main() -> None:
    """Run the command line; an error that quire raises on purpose becomes a line, exit code 2."""
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            # A character that the terminal's encoding lacks is spelt out, and stops nothing.
            output.reconfigure(errors="backslashreplace")
    debug = "--debug" in sys.argv
    try:
        app(args=[word for word in sys.argv[1:] if word != "--debug"])
    except QuireError as error:
        if debug:
            raise
        console = Console(stderr=True)
        console.print("[bold red]error[/]", end=" ")
        console.print(printable(str(error)), markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
