"""What the searches of `exact` get and give: sizes in the largest unit, and kinds of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd

import numpy as np

from quire.plan.lengths import IntArray

_MOST_SPACE = 1 << 15
"""Larger rows are measured in coarser units: a document loses at most one part in 32,768 of a row,
and a row of billions of tokens costs no more to search than this one."""


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
        unit = gcd(*sizes)
        space = max_length // unit
        # Sizes round up and the row rounds down, so that what fits here fits there.
        coarse = -(-space // _MOST_SPACE)
        space //= coarse
        by_size = [0] * (space + 1)
        for size, count in zip(sizes, counts, strict=True):
            by_size[min(-(-(size // unit) // coarse), space)] += count
        return cls(counts=by_size, space=space, cap=cap)

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
        return Problem(counts=counts, space=self.space, cap=self.cap)


class RowKinds:
    """Kinds of rows, each with the number of rows of that kind."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._sizes: list[int] = []
        self._lengths: list[int] = []
        self._times: list[int] = []

    def add(self, row: list[int], times: int) -> None:
        """So many rows that hold documents of these sizes."""
        self._sizes += sorted(row, reverse=True)
        self._lengths.append(len(row))
        self._times.append(times)
        self.num_rows += times

    def __iter__(self) -> Iterator[tuple[list[int], int]]:
        """The sizes in a row of each kind, decreasing, and the number of such rows."""
        sizes = iter(self._sizes)
        for length, times in zip(self._lengths, self._times, strict=True):
            yield list(islice(sizes, length)), times

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
        lengths, times = np.array(self._lengths, dtype=np.int64), np.array(self._times)
        held = np.arange(len(self._sizes)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        columns = (
            np.repeat(np.cumsum(times) - times, lengths),
            np.repeat(times, lengths),
            np.ones_like(held),
            held,
        )
        decreasing = np.argsort(-np.array(self._sizes), kind="stable")
        runs: IntArray = np.stack(columns, axis=1)[decreasing].reshape(-1)
        return runs
