"""Sizes as a histogram, and rows as runs of equal rows: what makes the decreasing strategies fast.

Sizes are integers no larger than a row, so a million documents have a few thousand distinct sizes.
`best_fit` and `first_fit` decide per distinct size: ``count`` fragments of one size go into a run
of rows with the same contents, some number to each. `fill_rows` is the loop that both share; they
differ in which free space they look for, which is the job of a `SpaceIndex`. `rows_from_runs` then
moves the fragments once.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol, TypeAlias

import numpy as np

from quire.plan.fragments import Rows
from quire.plan.lengths import IntArray, narrowest_signed

_CHUNK = 1 << 16
"""Fragments moved at a time, so that the index arrays of a chunk stay in the cache."""

Runs: TypeAlias = "list[int] | IntArray"
"""Four numbers for each run (see `rows_from_runs`), one run after another."""
FillRuns: TypeAlias = Callable[[list[int], list[int], int, int], tuple[Runs, int]]
"""Decreasing sizes, their counts, the row size and the most fragments in a row; returns runs (see
`rows_from_runs`) and the number of rows."""


def distinct_sizes(sizes: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct sizes in increasing order, and the count of each.

    >>> distinct_sizes(np.array([3, 1, 3]))
    (array([1, 3]), array([1, 2]))
    """
    largest = int(sizes.max(initial=0))
    if largest > max(len(sizes), _CHUNK):
        values, counts = np.unique(sizes, return_counts=True)
        return values.astype(np.int64), counts
    counts = np.zeros(largest + 1, dtype=np.int64)
    for first in range(0, len(sizes), _CHUNK):  # bincount makes a 64-bit copy of its input
        counts += np.bincount(sizes[first : first + _CHUNK], minlength=largest + 1)
    present = np.flatnonzero(counts)
    return present, counts[present]


def decreasing_rows(sizes: IntArray, max_length: int, cap: int | None, fill: FillRuns) -> Rows:
    """The rows that a decreasing strategy makes of these sizes."""
    distinct, counts = distinct_sizes(sizes)
    # A row that holds everything need not be larger, and index structures grow with its size.
    max_length = min(max_length, int(sizes.sum(dtype=np.int64)))
    runs, num_rows = fill(
        distinct[::-1].tolist(), counts[::-1].tolist(), max_length, cap or len(sizes)
    )
    return rows_from_runs(decreasing_order(sizes), runs, num_rows)


def rows_from_runs(order: IntArray, runs: Runs, num_rows: int) -> Rows:
    """Rows from runs: consecutive fragments of the order, given to consecutive rows.

    A run is four numbers: the first row, the number of rows, how many fragments each row gets, and
    how many it already holds.

    >>> rows = rows_from_runs(np.array([7, 8, 9]), [0, 2, 1, 0, 0, 1, 1, 1], num_rows=2)
    >>> rows.fragments, rows.offsets
    (array([7, 9, 8], dtype=int32), array([0, 2, 3]))
    """
    integer = narrowest_signed(len(order))
    table: IntArray = np.array(runs).reshape(-1, 4).astype(integer)
    ends = np.cumsum(table[:, 1] * table[:, 2])
    offsets = _row_offsets(table, num_rows)
    row_starts: IntArray = offsets.astype(integer)
    fragments = np.empty(len(order), dtype=integer)
    run = start = 0
    while start < len(order):
        last = max(run + 1, int(np.searchsorted(ends, start + _CHUNK, side="right")))
        stop = int(ends[last - 1])
        fragments[_targets(table[run:last], row_starts)] = order[start:stop]
        run, start = last, stop
    return Rows(fragments=fragments, offsets=offsets)


def _row_offsets(table: IntArray, num_rows: int) -> IntArray:
    first_row, rows, per_row, _ = table.T
    # Sums of whole numbers below 2^53 are exact in the floats that `bincount` returns.
    more = np.bincount(first_row + 1, weights=per_row, minlength=num_rows + 2)
    more -= np.bincount(first_row + rows + 1, weights=per_row, minlength=num_rows + 2)
    fragments_per_row = np.cumsum(more[:-1])
    return np.cumsum(fragments_per_row).astype(np.int64)


def _targets(table: IntArray, offsets: IntArray) -> IntArray:
    """Where each fragment of these runs goes in the row order."""
    first_row, rows, per_row, held = table.T
    items = rows * per_row
    ends = np.cumsum(items, dtype=items.dtype)
    within = np.arange(ends[-1], dtype=items.dtype) - np.repeat(ends - items, items)
    if per_row.max() == 1:
        row, rank = within, np.repeat(held, items)
    else:
        row, rank = np.divmod(within, np.repeat(per_row, items))
        rank += np.repeat(held, items)
    row += np.repeat(first_row, items)
    targets: IntArray = offsets[row] + rank
    return targets


def decreasing_order(sizes: IntArray) -> IntArray:
    """Fragment numbers by decreasing size; costs one radix sort per 16 bits.

    Equal sizes keep their input order.

    >>> decreasing_order(np.array([3, 5, 3], np.uint16))
    array([1, 0, 2])
    """
    largest = int(sizes.max(initial=0))
    order = np.argsort(_digit(sizes, largest, 0), kind="stable")
    for shift in range(16, largest.bit_length(), 16):
        order = order[np.argsort(_digit(sizes[order], largest, shift), kind="stable")]
    return order


def _digit(sizes: IntArray, largest: int, shift: int) -> IntArray:
    """Sixteen bits of ``largest - size``: NumPy has no radix sort for wider integers."""
    if largest <= 0xFFFF:
        keys: IntArray = np.subtract(largest, sizes, dtype=np.uint16, casting="unsafe")
        return keys
    digits: IntArray = np.right_shift(largest - sizes, shift).astype(np.uint16)
    return digits


class SpaceIndex(Protocol):
    """Knows which free spaces exist among the open rows, and which one a strategy takes next."""

    def put(self, space: int, oldest_row: int) -> None:
        """There are rows with this space; the oldest of them is given."""

    def remove(self, space: int) -> None:
        """No row has this space any longer."""

    def find(self, size: int) -> int:
        """The space that a fragment of this size goes into, or 0 for a new row."""


def fill_rows(
    sizes: list[int], counts: list[int], max_length: int, cap: int, index: SpaceIndex
) -> tuple[list[int], int]:
    """Runs over the decreasing order (see `rows_from_runs`), and the number of rows."""
    if not sizes:
        return [], 0
    rows = _OpenRows(smallest=sizes[-1], cap=cap, index=index)
    find = index.find
    for size, count in zip(sizes, counts, strict=True):
        left = count
        while left:
            space = find(size)
            if space:
                left = rows.fill(rows.pop(space), space, size, left)
            else:
                new = rows.open(-(-left // min(max_length // size, cap)))
                left = rows.fill(new, max_length, size, left)
    return rows.runs, rows.num_rows


_Run: TypeAlias = tuple[int, int, int]
"""First row, number of rows, fragments that each of them holds."""


class _OpenRows:
    """Runs of rows in buckets by free space; within a bucket the oldest run comes first."""

    __slots__ = ("_buckets", "_cap", "_index", "_smallest", "num_rows", "runs")

    def __init__(self, smallest: int, cap: int, index: SpaceIndex) -> None:
        self.runs: list[int] = []
        self.num_rows = 0
        self._smallest = smallest
        self._cap = cap
        self._index = index
        self._buckets: dict[int, list[_Run]] = {}

    def open(self, num_rows: int) -> _Run:
        """A run of new, empty rows."""
        first = self.num_rows
        self.num_rows += num_rows
        return first, num_rows, 0

    def pop(self, space: int) -> _Run:
        """Remove and return the oldest run of rows with this space."""
        bucket = self._buckets[space]
        run = heappop(bucket)
        if bucket:
            self._index.put(space, bucket[0][0])
        else:
            self._index.remove(space)
        return run

    def fill(self, run: _Run, space: int, size: int, count: int) -> int:
        """Give fragments of one size to the rows of a run; return how many are left over."""
        first, rows, held = run
        per_row = min(space // size, self._cap - held)
        full = min(rows, count // per_row)
        if full:
            self.runs.extend((first, full, per_row, held))
            self._push(space - per_row * size, (first, full, held + per_row))
            if full == rows:
                return count - full * per_row
        rest = count - full * per_row
        if rest:
            self.runs.extend((first + full, 1, rest, held))
            self._push(space - rest * size, (first + full, 1, held + rest))
            full += 1
        if full < rows:
            self._push(space, (first + full, rows - full, held))
        return 0

    def _push(self, space: int, run: _Run) -> None:
        if space < self._smallest or run[2] >= self._cap:
            return  # nothing will ever fit
        bucket = self._buckets.get(space)
        if bucket:
            heappush(bucket, run)
            if bucket[0] is run:
                self._index.put(space, run[0])
        else:
            self._buckets[space] = [run]
            self._index.put(space, run[0])
