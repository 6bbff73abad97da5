"""A row in a terminal: every document in its own color, with its boundaries in the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from quire.boundaries import position_ids
from quire.printable import counted, printable
from quire.report.distributions import length_bins
from quire.view.rows import Decode, RowView

_COLORS = ("cyan", "yellow", "green", "magenta", "blue", "red")
_BAR = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class DisplayOptions:
    """What to show of a row."""

    tokenized: bool = False
    """Token ids instead of text."""
    positions: bool = False
    """Position ids below the tokens of each document."""
    most: int | None = 400
    """Characters (or tokens, where tokens are shown) of each document; None: all."""


def show_row(row: RowView, decode: Decode | None, options: DisplayOptions) -> Iterator[Text]:
    """The lines of a row: a header, then the start and the content of each document."""
    yield header(row)
    positions = position_ids(row.starts, len(row.input_ids))
    for place, (start, length) in enumerate(zip(row.starts, row.lengths, strict=True)):
        part = slice(int(start), int(start + length))
        yield Text(f"├─ {place} · starts at {start:,} · {counted(length, 'token')}", style="dim")
        tokens = row.input_ids[part].tolist()
        yield Text(_content(tokens, decode, options), style=_COLORS[place % len(_COLORS)])
        if options.positions:
            shown = _cut_list(positions[part].tolist(), options.most and 60)
            yield Text(f"   positions {shown}", style="dim")


def header(row: RowView) -> Text:
    """The line above a row, in the same form as Forgather's."""
    documents = f"{len(row.starts)}" if row.has_starts else "? (no document_starts)"
    features = ", ".join(printable(name, keep="") for name in row.features)
    return Text(
        f"------------- {row.number} Tokens: {len(row.input_ids)}, Documents: {documents}, "
        f"Features: {features} -------------",
        style="bold",
    )


def _content(tokens: list[int], decode: Decode | None, options: DisplayOptions) -> str:
    if options.tokenized or decode is None:
        return _cut_list(tokens, options.most)
    most = options.most
    if most is None:
        return printable(decode(tokens), keep="\n\t")
    # A character takes at most about four tokens, so this many are enough.
    text = decode(tokens[: 4 * most])
    cut = len(text) > most or len(tokens) > 4 * most
    return printable(text[:most], keep="\n\t") + (" …" if cut else "")


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
