"""Sizes as a histogram, and rows as runs of equal ones.

Sizes are integers no larger than a row, so a million documents have a few thousand distinct sizes.
The decreasing strategies decide per distinct size: ``count`` fragments of one size go into a run of
rows that are all alike, some number to each. What a strategy emits is a list of such runs, over the
fragments in decreasing order; `rows_from_runs` moves the fragments, once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quire.plan.lengths import IntArray, narrowest_signed
from quire.plan.rows import Rows

_CHUNK = 1 << 16
"""Fragments moved at a time: the index arrays of a chunk stay in the cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """Distinct sizes in decreasing order, how many there are, and the fragments in that order."""

    sizes: list[int]
    counts: list[int]
    order: IntArray
    """Fragment numbers, by size descending and then as they came."""

    @classmethod
    def of(cls, sizes: IntArray) -> Histogram:
        """The histogram of the sizes; one radix sort for every 16 bits.

        >>> Histogram.of(np.array([3, 5, 3], np.uint16)).order
        array([1, 0, 2])
        """
        distinct, counts = distinct_sizes(sizes)
        largest = int(distinct[-1]) if len(distinct) else 0
        return cls(
            sizes=distinct[::-1].tolist(),
            counts=counts[::-1].tolist(),
            order=_decreasing_order(sizes, largest),
        )


def distinct_sizes(sizes: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct sizes in increasing order, and how many there are of each.

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


def rows_from_runs(order: IntArray, runs: list[int], num_rows: int) -> Rows:
    """Rows from runs: consecutive fragments of the order, dealt to consecutive rows.

    A run is four numbers: the first row, how many rows, how many fragments each row gets, and how
    many it holds already.

    >>> rows = rows_from_runs(np.array([7, 8, 9]), [0, 2, 1, 0, 0, 1, 1, 1], num_rows=2)
    >>> rows.fragments, rows.offsets
    (array([7, 9, 8], dtype=int32), array([0, 2, 3]))
    """
    integer = narrowest_signed(len(order))
    table: IntArray = np.array(runs).reshape(-1, 4).astype(integer)
    ends = np.cumsum(table[:, 1] * table[:, 2])
    offsets = _row_offsets(table, num_rows)
    places_of_rows: IntArray = offsets.astype(integer)
    fragments = np.empty(len(order), dtype=integer)
    run = start = 0
    while start < len(order):
        last = max(run + 1, int(np.searchsorted(ends, start + _CHUNK, side="right")))
        stop = int(ends[last - 1])
        fragments[_places(table[run:last], places_of_rows)] = order[start:stop]
        run, start = last, stop
    return Rows(fragments=fragments, offsets=offsets)


def _row_offsets(table: IntArray, num_rows: int) -> IntArray:
    first_row, rows, per_row, _ = table.T
    offsets = np.zeros(num_rows + 2, dtype=np.int64)
    np.add.at(offsets, first_row + 1, per_row)
    np.subtract.at(offsets, first_row + rows + 1, per_row)
    fragments_per_row = np.cumsum(offsets[:-1], out=offsets[:-1])
    return np.cumsum(fragments_per_row)


def _places(table: IntArray, offsets: IntArray) -> IntArray:
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
    places: IntArray = offsets[row] + rank
    return places


def _decreasing_order(sizes: IntArray, largest: int) -> IntArray:
    order = np.argsort(_digit(sizes, largest, 0), kind="stable")
    for shift in range(16, int(largest).bit_length(), 16):
        order = order[np.argsort(_digit(sizes[order], largest, shift), kind="stable")]
    return order


def _digit(sizes: IntArray, largest: int, shift: int) -> IntArray:
    """Sixteen bits of ``largest - size``: numpy sorts no wider integers by radix."""
    if largest <= 0xFFFF:
        keys: IntArray = np.subtract(largest, sizes, dtype=np.uint16, casting="unsafe")
        return keys
    digits: IntArray = np.right_shift(largest - sizes, shift).astype(np.uint16)
    return digits
