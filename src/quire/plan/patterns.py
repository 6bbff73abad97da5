"""Row patterns: kinds of rows, and how many rows are of each kind.

A plan for millions of documents has a few thousand kinds of rows, so everything that `tight` does
is done on kinds; documents are moved once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from quire.plan.lengths import IntArray

Pattern: TypeAlias = tuple[tuple[int, int], ...]
"""What one row holds: pairs of size index and number of fragments, the largest size first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patterns:
    """Kinds of rows over a histogram of decreasing sizes."""

    contents: tuple[Pattern, ...]
    rows: tuple[int, ...]
    """How many rows are of each kind, at least one."""

    @classmethod
    def of(cls, kinds: Iterable[tuple[Iterable[tuple[int, int]], int]]) -> Patterns:
        """Patterns from pairs of content and number of rows; equal contents become one kind.

        >>> Patterns.of([([(1, 1), (0, 1), (1, 1)], 2), ([(0, 1), (1, 2)], 3)])
        Patterns(contents=(((0, 1), (1, 2)),), rows=(5,))
        """
        rows: dict[Pattern, int] = {}
        for content, number in kinds:
            pattern = _ordered(content)
            rows[pattern] = rows.get(pattern, 0) + number
        return cls(contents=tuple(rows), rows=tuple(rows.values()))

    @property
    def num_rows(self) -> int:
        """Rows of all kinds together."""
        return sum(self.rows)

    def counts(self, num_sizes: int) -> IntArray:
        """How many fragments of each size all rows hold together."""
        counts = np.zeros(num_sizes, dtype=np.int64)
        for pattern, rows in zip(self.contents, self.rows, strict=True):
            for size, number in pattern:
                counts[size] += number * rows
        return counts

    def runs(self) -> list[int]:
        """Runs over the fragments in decreasing order, as `rows_from_runs` takes them.

        >>> Patterns(contents=(((0, 1), (1, 2)), ((1, 3),)), rows=(5, 1)).runs()
        [0, 5, 1, 0, 0, 5, 2, 1, 5, 1, 3, 0]
        """
        runs: list[tuple[int, int, int, int, int]] = []
        first_row = 0
        for pattern, rows in zip(self.contents, self.rows, strict=True):
            held = 0
            for size, number in pattern:
                runs.append((size, first_row, rows, number, held))
                held += number
            first_row += rows
        return [value for run in sorted(runs) for value in run[1:]]


def _ordered(content: Iterable[tuple[int, int]]) -> Pattern:
    numbers: dict[int, int] = {}
    for size, number in content:
        numbers[size] = numbers.get(size, 0) + number
    return tuple(sorted(numbers.items()))
