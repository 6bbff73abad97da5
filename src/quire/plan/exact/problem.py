"""What the searches of `exact` get and give: sizes in the largest unit, and kinds of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quire.plan.histogram import Runs, decreasing_order
from quire.plan.lengths import IntArray

_MOST_SPACE = 1 << 15
"""Larger rows are measured in coarser units: a document loses at most one part in 32,768 of a row,
and a row of billions of tokens costs no more to search than this one."""
_MOST_SPACE_OF_FEW = 1 << 13
"""The same where few documents fill a row: they lose at most one part in 2,000 of it, usually half
of that, and a search of a million documents takes two seconds instead of nine."""
_FEW_IN_A_ROW = 4


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
        units = np.array(sizes)
        unit = int(np.gcd.reduce(units))
        space = max_length // unit
        # Sizes round up and the row rounds down, so that what fits here fits there.
        total, documents = sum(map(int.__mul__, sizes, counts)), sum(counts)
        few = documents * max_length <= _FEW_IN_A_ROW * total
        coarse = -(-space // (_MOST_SPACE_OF_FEW if few else _MOST_SPACE))
        space //= coarse
        units = np.minimum(-(-(units // unit) // coarse), space)
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
        self._parts: list[tuple[IntArray, IntArray]] = []
        """Sizes, and a table with a run of each."""

    def add(self, row: list[int], times: int) -> None:
        """So many rows that hold documents of these sizes."""
        self._sizes += sorted(row, reverse=True)
        self._lengths.append(len(row))
        self._firsts.append(self.num_rows)
        self._times.append(times)
        self.num_rows += times

    def add_all(self, columns: IntArray, times: int) -> None:
        """So many rows for each column of sizes, of which zeros are not part."""
        rows = columns.T
        inside = rows > 0
        lengths = inside.sum(axis=1)
        firsts = self.num_rows + times * np.arange(len(rows))
        self._parts.append(_one_by_one(rows[inside], lengths, firsts, np.full(len(rows), times)))
        self.num_rows += times * len(rows)

    def add_runs(self, sizes: list[int], counts: list[int], runs: Runs, num_rows: int) -> None:
        """Rows given as runs over documents in decreasing order."""
        table: IntArray = np.array(runs, dtype=np.int64).reshape(-1, 4)
        before = np.cumsum(table[:, 1] * table[:, 2]) - 1
        size_of = np.array(sizes)[np.searchsorted(np.cumsum(counts), before, side="right")]
        table[:, 0] += self.num_rows
        self._parts.append((size_of, table))
        self.num_rows += num_rows

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
        kinds = (np.array(a, dtype=np.int64) for a in (self._lengths, self._firsts, self._times))
        one_by_one = _one_by_one(np.array(self._sizes, dtype=np.int64), *kinds)
        parts = [*self._parts, one_by_one] if self._sizes else self._parts
        sizes, tables = (np.concatenate(column) for column in zip(*parts, strict=True))
        runs: IntArray = tables[decreasing_order(sizes)].reshape(-1)
        return runs


def _one_by_one(
    sizes: IntArray, lengths: IntArray, firsts: IntArray, times: IntArray
) -> tuple[IntArray, IntArray]:
    """Sizes, and for each the run that gives one document to all rows of a kind."""
    held = np.arange(len(sizes)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    columns = (np.repeat(firsts, lengths), np.repeat(times, lengths), np.ones_like(held), held)
    return sizes, np.stack(columns, axis=1)
