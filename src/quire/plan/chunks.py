"""Planning very many documents a chunk at a time, so that the cost per document stays the same.

Placing many millions of fragments at once accesses memory at random in arrays larger than any
cache, and costs three times as much per document as a million at a time. A chunk of a million fills
its rows as well as more documents would, except for the last few: the emptiest rows of all chunks
are placed again, together. Chunks are made of blocks from all over the input, so documents sorted
by length do no harm. The histogram tells how many rows the whole would have; if chunks need clearly
more, everything is planned at once instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from quire.plan.fragments import Fragments, Rows
from quire.plan.histogram import FillRuns, distinct_sizes
from quire.plan.lengths import BoolArray, IntArray, narrowest_signed
from quire.plan.options import PlanOptions

CHUNK = 1 << 20
"""Documents planned at a time."""
MANY = 4 * CHUNK
"""Up to this many documents are planned at once."""
BLOCK = 1 << 10
"""Consecutive documents that go into the same chunk; a power of two."""
_EMPTIEST = 64
"""One row in this many is placed again, together with those of other chunks."""
_WORSE = 1000
"""Chunks may need one row in this many more than planning everything at once would."""

Placed: TypeAlias = tuple[Fragments, IntArray]
"""Fragments in row order, and the row offsets."""


def place_chunks(
    lengths: IntArray,
    options: PlanOptions,
    place_documents: Callable[[IntArray], Placed],
    place: Callable[[IntArray, int, PlanOptions], Rows],
    runs: FillRuns,
) -> Placed | None:
    """The rows of all chunks, with the emptiest placed again; None if that wastes rows."""
    kept, emptiest = _RowCollector(lengths, options), _RowCollector(lengths, options)
    histograms = []
    for numbers, (fragments, offsets) in _each_chunk(lengths, place_documents):
        spaces = options.spaces(fragments.lengths)
        histograms.append(distinct_sizes(spaces))
        full = _fullest(spaces, offsets, options)
        kept.add(numbers, *_select(fragments, offsets, full))
        emptiest.add(numbers, *_select(fragments, offsets, ~full))
    kept.add(None, *_place_again(*emptiest.rows(), options, place))
    fragments, offsets = kept.rows()
    fewest = _rows_of_the_whole(histograms, options, runs)
    return None if len(offsets) - 1 > fewest + fewest // _WORSE + 1 else (fragments, offsets)


_Numbers: TypeAlias = Callable[[IntArray], IntArray]
"""Positions in a chunk to document numbers."""


def _each_chunk(
    lengths: IntArray, place_documents: Callable[[IntArray], Placed]
) -> Iterator[tuple[_Numbers, Placed]]:
    """Every chunk that has rows, and how its documents are numbered in the whole."""
    count = -(-len(lengths) // CHUNK)
    whole_blocks = len(lengths) // BLOCK
    for chunk in range(count):
        part = lengths[: whole_blocks * BLOCK].reshape(-1, BLOCK)[chunk::count].reshape(-1)
        if whole_blocks % count == chunk:
            part = np.append(part, lengths[whole_blocks * BLOCK :])
        placed = place_documents(part)
        if len(placed[0]):
            yield _numbering(chunk, count), placed


def _numbering(chunk: int, count: int) -> _Numbers:
    def numbers(positions: IntArray) -> IntArray:
        inside = positions & (BLOCK - 1)
        documents: IntArray = (positions - inside) * count + chunk * BLOCK + inside
        return documents

    return numbers


def _rows_of_the_whole(
    histograms: list[tuple[IntArray, IntArray]], options: PlanOptions, runs: FillRuns
) -> int:
    """How many rows all fragments would need if they were planned at once."""
    if not histograms:
        return 0
    sizes, counts = (np.concatenate(column) for column in zip(*histograms, strict=True))
    distinct, which = np.unique(sizes, return_inverse=True)
    totals = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(totals, which, counts)
    cap = options.max_documents_per_row or int(totals.sum())
    max_length = min(options.row_space, int(distinct @ totals))
    return runs(distinct[::-1].tolist(), totals[::-1].tolist(), max_length, cap)[1]


class _RowCollector:
    """Rows of several chunks, appended to columns that have room for all."""

    def __init__(self, lengths: IntArray, options: PlanOptions) -> None:
        most = len(lengths) + _most_cuts(lengths, options)
        self._integer = narrowest_signed(max(most, int(lengths.max())))
        # Unlike growing columns, pages that are never written cost no memory.
        self._columns = [np.empty(most, dtype=self._integer) for _ in range(3)]
        self._counts: list[IntArray] = [np.zeros(0, dtype=np.int32)]
        self._used = 0

    def add(self, numbers: _Numbers | None, fragments: Fragments, offsets: IntArray) -> None:
        """Append rows, and give their documents the numbers that they have in the whole."""
        part = slice(self._used, self._used + len(fragments))
        documents, starts, stops = self._columns
        local: IntArray = fragments.documents.astype(self._integer, copy=False)
        documents[part] = local if numbers is None else numbers(local)
        starts[part], stops[part] = fragments.starts, fragments.stops
        self._used = part.stop
        self._counts.append(np.diff(offsets).astype(np.int32))

    def rows(self) -> Placed:
        """All rows so far."""
        counts = np.concatenate(self._counts)
        offsets = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=offsets[1:])
        documents, starts, stops = (column[: self._used] for column in self._columns)
        return Fragments(documents=documents, starts=starts, stops=stops), offsets


def _most_cuts(lengths: IntArray, options: PlanOptions) -> int:
    if options.overlong != "split":  # a document has at most one fragment
        return 0
    return int(lengths.sum(dtype=np.int64)) // (options.max_fragment - options.stride)


def _fullest(spaces: IntArray, offsets: IntArray, options: PlanOptions) -> BoolArray:
    """All rows except the emptiest, as a mask."""
    used = np.add.reduceat(spaces, offsets[:-1], dtype=narrowest_signed(options.row_space))
    full = np.ones(len(used), dtype=bool)
    full[np.argsort(used, kind="stable")[: -(-len(used) // _EMPTIEST)]] = False
    return full


def _select(fragments: Fragments, offsets: IntArray, which: BoolArray) -> Placed:
    counts = np.diff(offsets)
    inside = np.flatnonzero(np.repeat(which, counts))
    return fragments.take(inside), np.append(0, np.cumsum(counts[which]))


def _place_again(
    fragments: Fragments,
    offsets: IntArray,
    options: PlanOptions,
    place: Callable[[IntArray, int, PlanOptions], Rows],
) -> Placed:
    """The same fragments in fewer rows, or unchanged."""
    rows = place(options.spaces(fragments.lengths), options.row_space, options)
    if len(rows.offsets) < len(offsets):
        return fragments.take(rows.fragments), rows.offsets
    return fragments, offsets
