"""`quire verify`: does a packed dataset match its manifest and its inputs?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from quire.cli.console import say, warnings_as_lines
from quire.cli.options import AsJson, PackedPath
from quire.errors import InvalidOption
from quire.ledger import Ledger
from quire.options import TokenizerEngine
from quire.printable import counted

if TYPE_CHECKING:
    from quire.verify.output import OutputReport


def verify(
    path: PackedPath,
    context: typer.Context,
    *,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            help="An input of the dataset (a file, a folder or a quoted glob) to compare it with; "
            "may be repeated."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="The tokenizer that packed it, for --inputs.")
    ] = None,
    tokenizer_engine: Annotated[
        TokenizerEngine | None,
        typer.Option(
            help="The library that tokenizes, for --inputs.", show_default="the reference"
        ),
    ] = None,
    image_root: Annotated[
        str | None,
        typer.Option(
            help="The folder that relative paths of images start at; images are hashed again."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a packed dataset against its manifest and inputs.

    Checksums, boundaries and totals are recounted from the files. With --inputs, the inputs are
    read again, and every token of them is compared.

    Exit code 0: whole. 1: not whole. 2: the check could not be made.

    Example: quire verify ./packed --inputs corpus/ --tokenizer byte
    """
    from quire.verify.output import verify_output

    if context.args:
        raise _unexpected_argument(context.args, inputs or [])
    if inputs:
        from quire.verify.inputs import require_inputs, verify_inputs

        require_inputs(
            path, inputs, tokenizer, tokenizer_engine=tokenizer_engine, image_root=image_root
        )
    report = verify_output(path, image_root=image_root)
    if inputs and report.ok:
        with warnings_as_lines():
            report = verify_inputs(
                report,
                inputs,
                tokenizer,
                tokenizer_engine=tokenizer_engine,
                image_root=image_root,
            )
    if as_json:
        typer.echo(report.to_json())
    else:
        print_report(report)
    raise typer.Exit(0 if report.ok else 1)


def _unexpected_argument(others: list[str], inputs: list[str]) -> InvalidOption:
    """Do not guess which of the arguments is the folder."""
    repeated = " ".join(f"--inputs {one}" for one in [*inputs, *others])
    return InvalidOption(
        f"unexpected argument {others[0]}: verify takes one folder, and each --inputs one input; "
        f"write {repeated}"
    )


def print_report(report: OutputReport) -> None:
    """Print what is wrong, and what was counted."""
    for problem in report.problems:
        say(Text.assemble(("wrong", "bold red"), " ", problem.encode("unicode_escape").decode()))
    counts = [
        counted(report.shards, "shard"),
        *([counted(report.plans, "plan")] if report.plans else []),
        counted(report.rows, "row"),
        counted(report.tokens, "token"),
        counted(report.documents, "document"),
        *([] if report.compared is None else [f"{report.compared:,} compared with the inputs"]),
    ]
    verdict = ("whole", "bold green") if report.ok else ("not whole", "bold red")
    say(Text.assemble(verdict, ": ", ", ".join(counts)))
    for note in report.notes:
        say(f"  note: {note}")
    if report.ok:
        for line in Ledger.from_dict(report.ledger).drop_lines():
            say(f"  {line}")
