"""An isolation report for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from quire.verify.report import Document, IsolationReport

MOST_ROWS = 12
"""Pairs that are shown; the JSON form holds all of them."""


def print_report(report: IsolationReport, console: Console) -> None:
    """Write the verdict, what speaks for it, and what to do."""
    console.print(Group(*_parts(report)))


def _parts(report: IsolationReport) -> Iterator[RenderableType]:
    style = "bold green" if report.isolated else "bold red"
    yield Text.assemble((report.verdict, style), f": {report.meaning}")
    yield Text(
        f"{report.num_documents} documents, {report.num_pairs} pairs, {report.dtype}, "
        f"{'training' if report.training else 'evaluation'} mode, "
        f"rounding up to {report.tolerance:.2g}",
        style="dim",
    )
    if report.pairs:
        yield _pairs(report)
    for found in report.altered[:MOST_ROWS]:
        yield Text(f"{found.document} differs from itself alone by {found.difference:.3g}")
    for part in report.disagreements:
        yield Text(f"{part.form} {part.message}")
    for name, reason in report.skipped.items():
        yield Text(f"not checked, {name}: {reason}", style="yellow")
    if report.diagnosis:
        tried = " (tried: it helps)" if report.diagnosis.confirmed else ""
        yield Text.assemble(("cause: ", "bold"), report.diagnosis.cause)
        yield Text.assemble(("remedy: ", "bold"), report.diagnosis.remedy, tried)


def _pairs(report: IsolationReport) -> Table:
    table = Table("changed", "noticed by", "difference", "gradient", "kind")
    for pair in sorted(report.pairs, key=lambda pair: -pair.difference)[:MOST_ROWS]:
        gradient = "-" if pair.gradient is None else f"{pair.gradient:.3g}"
        table.add_row(
            _short(pair.source), _short(pair.target), f"{pair.difference:.3g}", gradient, pair.kind
        )
    if len(report.pairs) > MOST_ROWS:
        table.caption = f"{len(report.pairs) - MOST_ROWS} more, all in --json"
    return table


def _short(document: Document) -> str:
    name = f"document {document.number}" if document.number else "padding"
    return f"row {document.row} {name}"
