"""What the searches of `exact` get and give: sizes in the largest unit, and kinds of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from quire.plan.histogram import decreasing_order
from quire.plan.lengths import IntArray

_MOST_SPACE = 1 << 15
"""Larger rows are measured in coarser units: a document loses at most one part in 32,768 of a row,
and a row of billions of tokens costs no more to search than this one."""
_MOST_SPACE_OF_FEW = 1 << 13
"""The same where few documents fill a row: they lose at most one part in 2,000 of it, usually half
of that, and a search of a million documents takes two seconds instead of nine."""
_FEW_IN_A_ROW = 4
_FIRST = 64
"""Sizes whose common divisor is computed first; it is nearly always 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Documents to pack: how many of each size, and the row."""

    counts: list[int]
    """The number of documents of each size, from 0 to ``space``."""
    space: int
    """The size of a row."""
    cap: int
    """The most documents in a row."""

    @classmethod
    def of(cls, sizes: Sequence[int], counts: Sequence[int], max_length: int, cap: int) -> Problem:
        """The same problem in the largest unit that divides all sizes.

        >>> Problem.of([6, 4], [1, 2], max_length=11, cap=9)
        Problem(counts=[0, 0, 2, 1, 0, 0], space=5, cap=9)
        """
        total, documents = sum(map(int.__mul__, sizes, counts)), sum(counts)
        units, space = in_units(np.array(sizes), max_length, total / documents)
        by_size = np.bincount(units, weights=np.array(counts), minlength=space + 1)
        return cls(counts=by_size.astype(np.int64).tolist(), space=space, cap=cap)

    @property
    def num_documents(self) -> int:
        """Documents of all sizes."""
        return sum(self.counts)

    @property
    def total(self) -> int:
        """The sizes of all documents together."""
        return sum(size * count for size, count in enumerate(self.counts) if count)

    def rest(self, left: dict[int, int]) -> Problem:
        """The same rows for some of the documents: sizes and their counts."""
        counts = [left.get(size, 0) for size in range(self.space + 1)]
        return replace(self, counts=counts)


class RowKinds:
    """Kinds of rows, each with the number of rows of that kind."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._sizes: list[int] = []
        self._lengths: list[int] = []
        self._firsts: list[int] = []
        self._times: list[int] = []

    def add(self, row: list[int], times: int) -> None:
        """So many rows that hold documents of these sizes."""
        self._sizes += sorted(row, reverse=True)
        self._lengths.append(len(row))
        self._firsts.append(self.num_rows)
        self._times.append(times)
        self.num_rows += times

    def rows(self) -> list[list[int]]:
        """The sizes in every row."""
        sizes = iter(self._sizes)
        kinds = [list(islice(sizes, length)) for length in self._lengths]
        return [row for row, times in zip(kinds, self._times, strict=True) for _ in range(times)]

    def runs(self) -> IntArray:
        """Runs over the documents in decreasing order, as `rows_from_runs` takes them.

        >>> kinds = RowKinds()
        >>> kinds.add([3, 5], 2)
        >>> kinds.add([4, 4], 1)
        >>> kinds.runs().reshape(-1, 4)
        array([[0, 2, 1, 0],
               [2, 1, 1, 0],
               [2, 1, 1, 1],
               [0, 2, 1, 1]])
        """
        lengths, firsts, times = map(np.array, (self._lengths, self._firsts, self._times))
        held = np.arange(len(self._sizes)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        columns = (np.repeat(firsts, lengths), np.repeat(times, lengths), np.ones_like(held), held)
        runs: IntArray = np.stack(columns, axis=1)[decreasing_order(np.array(self._sizes))]
        return runs.reshape(-1)


def in_units(sizes: IntArray, max_length: int, mean: float) -> tuple[IntArray, int]:
    """Sizes and the row in the largest unit that divides all sizes; coarser ones for long rows.

    Sizes round up and the row rounds down, so that what fits here fits there.

    >>> in_units(np.array([6, 4]), max_length=11, mean=5.0)
    (array([3, 2]), 5)
    """
    unit = int(np.gcd.reduce(sizes[:_FIRST]))
    if unit > 1:
        unit = int(np.gcd.reduce(sizes))
    space = max_length // unit
    few = max_length <= _FEW_IN_A_ROW * mean
    coarse = -(-space // (_MOST_SPACE_OF_FEW if few else _MOST_SPACE))
    if unit == coarse == 1:
        return sizes, space
    space //= coarse
    return np.minimum(-(-(sizes // unit) // coarse), space), space
