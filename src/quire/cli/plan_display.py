"""What `quire plan` shows: a table and an advice, or the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from quire.corpus.lengths import CorpusLengths
    from quire.plan.comparison import Candidate


def print_json(
    corpus: CorpusLengths, found: Sequence[Candidate], chosen: Candidate, reasons: list[str]
) -> None:
    """Write all figures in a line of JSON."""
    plain = {
        "documents": len(corpus.lengths),
        "tokens": int(corpus.lengths.sum()),
        "dropped_before": dict(corpus.ledger.documents.dropped),
        "tokens_dropped_before": dict(corpus.ledger.tokens.dropped),
        "candidates": [_plain(corpus, one) for one in found],
        "recommended": _plain(corpus, chosen),
        "reasons": reasons,
    }
    typer.echo(json.dumps(plain))


def _plain(corpus: CorpusLengths, one: Candidate) -> dict[str, object]:
    """A candidate with the ledger that `quire pack` would write."""
    return {**one.to_dict(), "ledger": (corpus.ledger + one.ledger).to_dict()}


def print_table(
    corpus: CorpusLengths,
    found: Sequence[Candidate],
    chosen: Candidate,
    reasons: Sequence[str],
    batch_size: int,
) -> None:
    """Show the table, and below it what to take and why."""
    import numpy as np

    # A narrow terminal wraps the table's lines; cut to its width, they would lose figures.
    console = Console(width=max(120, Console().width))
    lengths = corpus.lengths
    kept = ", lengths kept from before" if corpus.was_cached else ""
    console.print(
        f"[bold]{len(lengths):,}[/] documents, [bold]{int(lengths.sum()):,}[/] tokens, "
        f"median {int(np.median(lengths)):,}, longest {int(lengths.max()):,}{kept}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_table(found, chosen))
    console.print(
        "full: content over places; gap: rows over the proven fewest; cut, truncated: documents; "
        "lost: tokens, beside those of documents that no plan sees; attends: how many tokens a "
        "token attends to, on average; "
        f"steps: of {batch_size} rows.",
        style="dim",
        soft_wrap=True,
    )
    console.print(
        f"[bold green]take[/] --max-length {chosen.max_length} --strategy {chosen.strategy} "
        f"--overlong {chosen.overlong}",
        highlight=False,
        soft_wrap=True,
    )
    ledger = corpus.ledger + chosen.ledger
    packs = f"{ledger.documents.emitted:,} documents in {chosen.rows:,} rows"
    for line in [packs, *ledger.drop_lines(), *reasons]:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _table(found: Sequence[Candidate], chosen: Candidate) -> Table:
    """One table, with a heading line before each length and policy."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("strategy", no_wrap=True)
    for name in ("rows", "full", "gap", "cut", "truncated", "lost", "attends", "steps"):
        table.add_column(name, justify="right", no_wrap=True)
    before: tuple[int, str] | None = None
    for one in found:
        if before != (one.max_length, one.overlong):
            before = (one.max_length, one.overlong)
            table.add_row(f"[cyan]{one.max_length:,} {one.overlong}[/]")
        table.add_row(*_cells(one), style="bold green" if one is chosen else None)
    return table


def _cells(one: Candidate) -> list[str]:
    return [
        f"  {one.strategy}",
        f"{one.rows:,}",
        f"{one.utilization:.2%}",
        f"{one.gap:.2%}",
        f"{one.documents_cut:,}",
        f"{one.documents_truncated:,}",
        f"{one.tokens_lost:,}",
        f"{one.attention:,.0f}",
        f"{one.steps:,}",
    ]
