"""What `quire plan` prints: the comparison of strategies, and the estimate of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quire.cli.console import say
from quire.printable import counted, share_full
from quire.progress import stage

if TYPE_CHECKING:
    from quire.corpus.estimate import Estimate, Sample
    from quire.corpus.lengths import CorpusLengths
    from quire.corpus.options import CorpusOptions
    from quire.plan.comparison import Candidate

SAMPLE_BYTES = 16 << 20


def print_json(
    corpus: CorpusLengths, found: Sequence[Candidate], chosen: Candidate, reasons: list[str]
) -> None:
    """Write all figures in a line of JSON."""
    plain = {
        "documents": len(corpus.lengths),
        "tokens": int(corpus.lengths.sum()),
        "dropped_before": dict(corpus.ledger.documents.dropped),
        "tokens_dropped_before": dict(corpus.ledger.tokens.dropped),
        "candidates": [_candidate(corpus, one) for one in found],
        "recommended": _candidate(corpus, chosen),
        "reasons": reasons,
    }
    typer.echo(json.dumps(plain))


def _candidate(corpus: CorpusLengths, one: Candidate) -> dict[str, object]:
    """A candidate with the ledger that `quire pack` would write."""
    return {**one.to_dict(), "ledger": (corpus.ledger + one.ledger).to_dict()}


def print_table(
    corpus: CorpusLengths,
    found: Sequence[Candidate],
    chosen: Candidate,
    reasons: Sequence[str],
    batch_size: int,
    others: str = "",
) -> None:
    """Show the table, and below it the recommended options with the reasons.

    ``others`` are options that every one of the candidates needs.
    """
    import numpy as np

    lengths = corpus.lengths
    kept = ", lengths kept from before" if corpus.was_cached else ""
    say(
        f"[bold]{len(lengths):,}[/] documents, [bold]{int(lengths.sum()):,}[/] tokens, "
        f"median {int(np.median(lengths)):,}, longest {int(lengths.max()):,}{kept}",
        markup=True,
    )
    _print_whole(_comparison(found, chosen))
    say(
        "full: share of the rows that holds content; gap: rows above the proven minimum; cut, "
        "truncated: documents; lost: tokens with EOS, without those of documents dropped before "
        "planning; attends: how many tokens a token attends to, on average; "
        f"steps: of {batch_size} rows.",
        "dim",
    )
    say(
        f"[bold green]take[/] --max-length {chosen.max_length} --strategy {chosen.strategy} "
        f"--overlong {chosen.overlong}{escape(others)}",
        markup=True,
    )
    ledger = corpus.ledger + chosen.ledger
    packs = f"{counted(ledger.documents.emitted, 'document')} in {counted(chosen.rows, 'row')}"
    padding = [] if chosen.padding is None else chosen.padding.lines()
    for line in [packs, *padding, *ledger.drop_lines(), *reasons]:
        say(f"  {line}")


def _print_whole(table: Table) -> None:
    """Print a table; a narrow terminal wraps its lines rather than losing figures."""
    Console(width=max(120, Console().width)).print(table)


def _comparison(found: Sequence[Candidate], chosen: Candidate) -> Table:
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
        share_full(one.utilization),
        f"{one.gap:.2%}",
        f"{one.documents_cut:,}",
        f"{one.documents_truncated:,}",
        f"{one.tokens_lost:,}",
        f"{one.attention:,.0f}",
        f"{one.steps:,}",
    ]


def print_estimate(
    inputs: Sequence[str],
    tokenizer: str | None,
    options: CorpusOptions,
    *,
    workers: Sequence[int],
    documents: int | None,
    tokens: int | None,
    max_bad_records: int,
    as_json: bool,
) -> None:
    """Pack a sample, and print what the whole corpus would take with each number of workers."""
    from quire.corpus.estimate import estimate, pack_sample, require_question

    require_question(workers, documents, tokens)
    with stage("packing a sample"):
        sample = pack_sample(
            inputs, tokenizer, options, size=SAMPLE_BYTES, max_bad_records=max_bad_records
        )
    size = {"documents": documents, "tokens": tokens, "partition_size": options.partition_size}
    found = [estimate(sample, workers=count, **size) for count in workers]
    if as_json:
        plain = {"sample": asdict(sample), "estimates": [one.to_dict() for one in found]}
        typer.echo(json.dumps(plain))
    else:
        _print_estimates(sample, found, options)


def _print_estimates(sample: Sample, found: Sequence[Estimate], options: CorpusOptions) -> None:
    whole = found[0]
    say(
        f"sample: {sample.documents:,} documents, {sample.tokens:,} tokens, "
        f"{_size(sample.num_bytes)} of text, {sample.tokens / sample.seconds:,.0f} tokens/s"
    )
    say(
        f"the whole: {whole.documents:,} documents, {whole.tokens:,} tokens, "
        f"{_size(whole.num_bytes)} of text"
    )
    _print_whole(_estimates(found))
    say(
        f"rows of {options.max_length:,} by {options.strategy}; memory: the peak of one worker at "
        f"a partition of {_size(whole.partition_bytes)}; time: the sample "
        "was packed by one worker with one thread on this machine, and workers are assumed not to "
        "slow each other down; the manifest and the start of a cluster are not included.",
        "dim",
    )
    for line in _warnings(found):
        say(line)


def _warnings(found: Sequence[Estimate]) -> Iterator[str]:
    whole = found[0]
    if whole.partitions < found[-1].workers:
        yield (
            f"{found[-1].workers} workers have only {whole.partitions} partitions to share; lower "
            "--partition-size to keep all of them busy"
        )
    if whole.memory_per_worker is None:
        yield "memory: the sample is too small to tell; give a file of some megabytes"


def _estimates(found: Sequence[Estimate]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    names = (
        "workers",
        "partitions",
        "rows",
        "full",
        "memory per worker",
        "memory in total",
        "time",
    )
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        table.add_row(
            f"{one.workers:,}",
            f"{one.partitions:,}",
            f"{one.rows:,}",
            share_full(one.utilization),
            *(_memory(one, times) for times in (1, one.busy_workers)),
            _time(one.hours),
        )
    return table


def _memory(one: Estimate, times: int) -> str:
    return "?" if one.memory_per_worker is None else _size(one.memory_per_worker * times)


def _size(num_bytes: float) -> str:
    """Bytes, in the unit that suits.

    >>> _size(2_500_000)
    '2.5 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} B" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.1f} TB"


def _time(hours: float) -> str:
    """Hours, minutes or seconds.

    >>> _time(0.5), _time(30), _time(0.001)
    ('30 min', '30.0 h', '4 s')
    """
    if hours >= 1:
        return f"{hours:,.1f} h"
    return f"{60 * hours:.0f} min" if hours >= 1 / 30 else f"{3600 * hours:.0f} s"
