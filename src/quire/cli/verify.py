"""`quire verify`: is a packed dataset what its manifest says?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from quire.errors import InvalidOption
from quire.ledger import Ledger

if TYPE_CHECKING:
    from quire.verify.output import OutputReport


def verify(
    path: Annotated[str, typer.Argument(help="A folder that quire pack wrote, or its URI.")],
    context: typer.Context,
    *,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            help="Also read this input again (a file, a folder or a quoted glob) and look for "
            "every token of it; may be repeated."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="The tokenizer that packed them, for --inputs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the report as JSON.")] = False,
) -> None:
    """Recount a packed dataset from its files alone: checksums, boundaries, totals, every token.

    Exit code 0: it is whole. 1: it is not. 2: it could not be checked.

    Example: quire verify ./packed --inputs corpus/ --tokenizer byte
    """
    from quire.verify.output import verify_output

    if context.args:
        raise _word_too_many(context.args, inputs or [])
    report = verify_output(path)
    if inputs and report.ok:
        from quire.verify.inputs import verify_inputs

        report = verify_inputs(report, inputs, tokenizer)
    if as_json:
        typer.echo(report.to_json())
    else:
        print_report(report)
    raise typer.Exit(0 if report.ok else 1)


def _word_too_many(others: list[str], inputs: list[str]) -> InvalidOption:
    """Which of the words is the folder, only who wrote them knows; so none is guessed."""
    said = " ".join(f"--inputs {one}" for one in [*inputs, *others])
    return InvalidOption(
        f"{others[0]} stands alone, as --inputs takes one and verify one folder; write {said}"
    )


def print_report(report: OutputReport) -> None:
    """Say what is wrong, and what was counted."""
    console = Console()
    for problem in report.problems:
        shown = problem.encode("unicode_escape").decode()
        console.print(f"[bold red]wrong[/] {_plain(shown)}", highlight=False, soft_wrap=True)
    verdict = "[bold green]whole[/]" if report.ok else "[bold red]not whole[/]"
    console.print(
        f"{verdict}: {report.shards:,} shards, "
        + (f"{report.plans:,} plans, " if report.plans else "")
        + f"{report.rows:,} rows, {report.tokens:,} tokens, "
        f"{report.documents:,} documents"
        + ("" if report.compared is None else f", {report.compared:,} compared with the inputs"),
        highlight=False,
        soft_wrap=True,
    )
    if report.ok:
        for line in Ledger.from_dict(report.ledger).drop_lines():
            console.print(f"  {line}", highlight=False, soft_wrap=True)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
