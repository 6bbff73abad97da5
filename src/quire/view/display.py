"""A row in a terminal: every document in its own color, with its boundaries in the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from rich.text import Text

from quire.boundaries import position_ids
from quire.printable import counted, printable
from quire.report.distributions import length_bins
from quire.view.rows import Decode, RowView, Source

_COLORS = ("cyan", "yellow", "green", "magenta", "blue", "red")
_BAR = 40
_MOST_RUNS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class DisplayOptions:
    """What to show of a row."""

    tokenized: bool = False
    """Token ids instead of text."""
    positions: bool = False
    """Position ids below the tokens of each document."""
    labels: bool = False
    """Which tokens are trained, and where each fragment comes from."""
    marks: bool = False
    """With `labels`, brackets around trained tokens, for output without colors."""
    most: int | None = 400
    """Characters (or tokens, where tokens are shown) of each document; None: all."""


def show_row(row: RowView, decode: Decode | None, options: DisplayOptions) -> Iterator[Text]:
    """The lines of a row: a header, then the start and the content of each document."""
    yield header(row, options)
    if row.note:
        yield Text(f"warning: {row.note}", style="yellow")
    positions = position_ids(row.starts, len(row.input_ids)) if len(row.input_ids) else None
    for place, (start, stop) in enumerate(row.spans):
        color = _COLORS[place % len(_COLORS)]
        yield Text(f"├─ {fragment_line(row, place, options)}", style="dim")
        if options.labels:
            yield _content_with_labels(row, start, stop, decode, options, color)
        else:
            tokens = row.input_ids[start:stop].tolist()
            yield Text(content(tokens, decode, options), style=color)
        if options.positions and positions is not None:
            shown = _cut_list(positions[start:stop].tolist(), options.most and 60)
            yield Text(f"   positions {shown}", style="dim")
    if row.padding:
        yield Text(f"├─ {counted(row.padding, 'place')} of padding", style="dim")


def header(row: RowView, options: DisplayOptions) -> Text:
    """The line above a row, in the same form as Forgather's."""
    documents = f"{len(row.starts)}" if row.has_starts else "? (no document_starts)"
    features = ", ".join(printable(name, keep="") for name in row.features)
    trained = f"Trained: {row.trained.sum()}, " if options.labels else ""
    return Text(
        f"------------- {row.number} Tokens: {len(row.input_ids)}, {trained}"
        f"Documents: {documents}, Features: {features} -------------",
        style="bold",
    )


def fragment_line(row: RowView, place: int, options: DisplayOptions) -> str:
    """What a fragment is: where it starts, its size and, with `labels`, what is known of it."""
    start, stop = row.spans[place]
    parts = [f"{place} · starts at {start:,}", counted(stop - start, "token")]
    if options.labels:
        parts.append(f"{int(row.trained[start:stop].sum()):,} trained")
        parts += [source_text(source) for source in row.sources[place : place + 1]]
    return " · ".join(parts)


def source_text(source: Source) -> str:
    """Where a fragment comes from.

    >>> source_text(Source(document=7, offset=64, file="a.jsonl", record=7))
    'a.jsonl, record 7, from token 64 (continued)'
    >>> source_text(Source(document=7, offset=0, file="a.jsonl", record=3, answer="rejected"))
    'a.jsonl, record 3 (rejected)'
    """
    name = f"document {source.document}"
    if source.file is not None:
        name = f"{printable(source.file, keep='')}, record {source.record:,}"
        name += f" ({source.answer})" if source.answer else ""
    return f"{name}, from token {source.offset:,} (continued)" if source.is_continuation else name


def content(tokens: list[int], decode: Decode | None, options: DisplayOptions) -> str:
    """Tokens as text, or as numbers without a decoder; cut if there are many."""
    if options.tokenized or decode is None:
        return _cut_list(tokens, options.most)
    most = options.most
    if most is None:
        return printable(decode(tokens), keep="\n\t")
    # A character takes at most about four tokens, so this many are enough.
    text = decode(tokens[: 4 * most])
    cut = len(text) > most or len(tokens) > 4 * most
    return printable(text[:most], keep="\n\t") + (" …" if cut else "")


def runs(row: RowView, start: int, stop: int) -> list[tuple[int, int, bool]]:
    """Start, stop and whether it is trained, of every run of tokens in a fragment."""
    flags = row.trained[start:stop]
    edges = [0, *(np.flatnonzero(np.diff(flags)) + 1).tolist(), stop - start]
    return [
        (start + first, start + last, bool(flags[first]))
        for first, last in pairwise(edges)
        if last > first
    ]


def _content_with_labels(
    row: RowView,
    start: int,
    stop: int,
    decode: Decode | None,
    options: DisplayOptions,
    color: str,
) -> Text:
    """The fragment's text: trained runs in reverse video, or in brackets; others dim."""
    line = Text()
    found = runs(row, start, stop)
    shown = found if options.most is None else found[:_MOST_RUNS]
    numbers = options.tokenized or decode is None
    for first, last, is_trained in shown:
        text = content(row.input_ids[first:last].tolist(), decode, options)
        if options.marks and is_trained:
            text = f"⟦{text}⟧"
        line.append(text, style=f"{color} reverse" if is_trained else "dim")
        line.append(" " if numbers else "")
    if len(found) > len(shown):
        line.append(f" … {len(found) - len(shown):,} more runs of tokens", style="dim")
    return line


def _cut_list(numbers: list[int], most: int | None) -> str:
    shown = numbers if most is None else numbers[: max(1, most // 5)]
    more = len(numbers) - len(shown)
    return " ".join(map(str, shown)) + (f" … {more:,} more" if more else "")


def histogram_lines(documents: list[int], rows: list[int], max_length: int | None) -> Iterator[str]:
    """Fragments and rows by length, as bars of text."""
    for name, lengths in (("fragments", documents), ("rows", rows)):
        values = np.array(lengths, dtype=np.int64)
        bins = length_bins(None, values)
        edges, counts = bins["edges"], bins["fragments"]
        largest = max(counts, default=0)
        yield f"{name}: {len(values):,}, {counted(int(values.sum()), 'token')}"
        for low, high, count in zip(edges, edges[1:], counts, strict=False):
            if count:
                bar = "█" * max(1, round(_BAR * count / largest))
                yield f"  {low:>9,} - {high - 1:<9,} {count:>9,} {bar}"
    if max_length and rows:
        fill = sum(rows) / (len(rows) * max_length)
        yield f"fill: {fill:.3%} of rows of {max_length:,}, special tokens included"
