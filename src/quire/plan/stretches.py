"""Very many documents, planned a stretch at a time: time and memory grow with their number alone.

Placing millions of fragments reads and writes all over arrays that no cache holds, three times
slower a document than a million at a time. A stretch of a million fills its rows as well as more
would, but for its last few: the emptiest rows of all stretches are placed once more, together.
Stretches are made of leaves from all over the input, so that documents in order of length do no
harm; and as the histogram alone tells how many rows the whole would have, what still came out
worse is planned as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from quire.plan.fragments import Fragments
from quire.plan.histogram import distinct_sizes
from quire.plan.lengths import BoolArray, IntArray, narrowest_signed
from quire.plan.options import PlanOptions
from quire.plan.rows import Rows

STRETCH = 1 << 20
"""Documents planned at a time, where there are many times as many."""
MANY = 4 * STRETCH
"""Up to so many documents are planned as one."""
LEAF = 1 << 10
"""Documents that follow each other and come into the same stretch; a power of two."""
_EMPTIEST = 64
"""One row in so many is placed once more, together with those of other stretches."""
_WORSE = 1000
"""One row in so many may come on top of those that the whole would have."""

LaidOut = tuple[Fragments, IntArray]
"""Fragments in row order, and the row offsets."""
Place = Callable[[IntArray, int, PlanOptions], Rows]
Deal = Callable[[list[int], list[int], int, int], tuple[list[int], int]]
"""Decreasing sizes and their counts, capacity and cap in; runs, and the number of rows, out."""


def lay_out_stretches(
    lengths: IntArray,
    options: PlanOptions,
    lay_out: Callable[[IntArray], LaidOut],
    place: Place,
    deal: Deal,
) -> LaidOut | None:
    """What ``lay_out`` gives for each stretch, and the emptiest rows anew.

    None if the whole would have clearly fewer rows.
    """
    kept, emptiest = _Joined(lengths, options), _Joined(lengths, options)
    sizes = _Sizes()
    for numbers, (fragments, offsets) in _each(lengths, lay_out):
        spaces = options.spaces(fragments.lengths)
        sizes.add(spaces)
        full = _fullest(spaces, offsets, options)
        kept.add(numbers, *_rows(fragments, offsets, full))
        emptiest.add(numbers, *_rows(fragments, offsets, ~full))
    kept.add(_as_they_are, *_placed_anew(*emptiest.rows(), options, place))
    fragments, offsets = kept.rows()
    fewest = sizes.rows_of_the_whole(options, deal)
    return None if len(offsets) - 1 > fewest + fewest // _WORSE + 1 else (fragments, offsets)


Numbers = Callable[[IntArray], IntArray]
"""Places in a stretch to document numbers."""


def _each(
    lengths: IntArray, lay_out: Callable[[IntArray], LaidOut]
) -> Iterator[tuple[Numbers, LaidOut]]:
    """Every stretch that has rows, and what its documents are called in the whole."""
    count = -(-len(lengths) // STRETCH)
    whole_leaves = len(lengths) // LEAF
    for stretch in range(count):
        leaves = lengths[: whole_leaves * LEAF].reshape(-1, LEAF)[stretch::count]
        part = leaves.reshape(-1)
        if whole_leaves % count == stretch:
            part = np.append(part, lengths[whole_leaves * LEAF :])
        laid_out = lay_out(part)
        if len(laid_out[0]):
            yield _numbers(stretch, count), laid_out


def _numbers(stretch: int, count: int) -> Numbers:
    def numbers(places: IntArray) -> IntArray:
        inside = places & (LEAF - 1)
        there: IntArray = (places - inside) * count + stretch * LEAF + inside
        return there

    return numbers


def _as_they_are(numbers: IntArray) -> IntArray:
    return numbers


class _Sizes:
    """The histogram of all fragments."""

    def __init__(self) -> None:
        self._parts: list[tuple[IntArray, IntArray]] = []

    def add(self, spaces: IntArray) -> None:
        self._parts.append(distinct_sizes(spaces))

    def rows_of_the_whole(self, options: PlanOptions, deal: Deal) -> int:
        if not self._parts:
            return 0
        sizes, counts = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        distinct, which = np.unique(sizes, return_inverse=True)
        totals = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(totals, which, counts)
        cap = options.max_documents_per_row or int(totals.sum())
        capacity = min(options.row_space, int(distinct @ totals))
        return deal(distinct[::-1].tolist(), totals[::-1].tolist(), capacity, cap)[1]


class _Joined:
    """Rows of several stretches, one after the other, in columns that have room for all."""

    def __init__(self, lengths: IntArray, options: PlanOptions) -> None:
        most = len(lengths) + _most_cuts(lengths, options)
        self._integer = narrowest_signed(max(most, int(lengths.max())))
        # Pages that nothing is written to cost no memory, unlike columns that grow.
        self._columns = [np.empty(most, dtype=self._integer) for _ in range(3)]
        self._counts: list[IntArray] = [np.zeros(0, dtype=np.int32)]
        self._used = 0

    def add(self, numbers: Numbers, fragments: Fragments, offsets: IntArray) -> None:
        """Take rows, and give their documents the numbers that they have in the whole."""
        place = slice(self._used, self._used + len(fragments))
        documents, starts, stops = self._columns
        documents[place] = numbers(fragments.documents.astype(self._integer, copy=False))
        starts[place], stops[place] = fragments.starts, fragments.stops
        self._used = place.stop
        self._counts.append(np.diff(offsets).astype(np.int32))

    def rows(self) -> LaidOut:
        """All rows that were taken."""
        counts = np.concatenate(self._counts)
        offsets = np.zeros(len(counts) + 1, dtype=np.int64)
        np.cumsum(counts, out=offsets[1:])
        documents, starts, stops = (column[: self._used] for column in self._columns)
        return Fragments(documents=documents, starts=starts, stops=stops), offsets


def _most_cuts(lengths: IntArray, options: PlanOptions) -> int:
    if options.overlong != "split":  # a document has one fragment, or none
        return 0
    return int(lengths.sum(dtype=np.int64)) // (options.max_fragment - options.stride)


def _fullest(spaces: IntArray, offsets: IntArray, options: PlanOptions) -> BoolArray:
    """All rows but the emptiest, as a mask."""
    used = np.add.reduceat(spaces, offsets[:-1], dtype=narrowest_signed(options.row_space))
    full = np.ones(len(used), dtype=bool)
    full[np.argsort(used, kind="stable")[: -(-len(used) // _EMPTIEST)]] = False
    return full


def _rows(fragments: Fragments, offsets: IntArray, which: BoolArray) -> LaidOut:
    counts = np.diff(offsets)
    inside = np.flatnonzero(np.repeat(which, counts))
    return fragments.take(inside), np.append(0, np.cumsum(counts[which]))


def _placed_anew(
    fragments: Fragments, offsets: IntArray, options: PlanOptions, place: Place
) -> LaidOut:
    """The same fragments in fewer rows, or as they were."""
    rows = place(options.spaces(fragments.lengths), options.row_space, options)
    if len(rows.offsets) < len(offsets):
        return fragments.take(rows.fragments), rows.offsets
    return fragments, offsets
