"""Row patterns: kinds of rows over a histogram of sizes, and best-fit on them.

A plan for millions of documents has a few thousand kinds of rows, so `tight` works only on kinds;
documents are moved once, at the end.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

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
            counts: dict[int, int] = {}
            for size, count in content:
                counts[size] = counts.get(size, 0) + count
            pattern = tuple(sorted(counts.items()))
            rows[pattern] = rows.get(pattern, 0) + number
        return cls(contents=tuple(rows), rows=tuple(rows.values()))

    @property
    def num_rows(self) -> int:
        """Rows of all kinds together."""
        return sum(self.rows)

    def table(self, num_sizes: int) -> IntArray:
        """One line per kind of row, with the number of fragments of each size."""
        table = np.zeros((len(self.contents), num_sizes), dtype=np.int64)
        for line, pattern in enumerate(self.contents):
            for size, number in pattern:
                table[line, size] = number
        return table

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


class Group(NamedTuple):
    """Rows with the same content."""

    rows: int
    space: int
    """What each row has left."""
    held: int
    """How many fragments each row holds."""
    content: Pattern

    def take(self, rows: int, size_index: int, size: int, number: int) -> Group:
        """Some of these rows, after each took a number of fragments of one size."""
        content = (*self.content, (size_index, number))
        return Group(rows, self.space - number * size, self.held + number, content)


def fill(
    sizes: list[int], counts: list[int], max_length: int, cap: int, started: Iterable[Group] = ()
) -> Patterns:
    """The started rows and as many new ones as needed, filled by best-fit decreasing.

    Among rows with equal space, those that hold the fewest fragments come first.

    >>> fill([6, 4, 3], [1, 2, 1], max_length=10, cap=9)
    Patterns(contents=(((0, 1), (1, 1)), ((1, 1), (2, 1))), rows=(1, 1))
    >>> fill([6, 4, 3], [0, 2, 1], 10, 9, started=[Group(1, 3, 1, ((0, 1),))]).contents
    (((1, 2),), ((0, 1), (2, 1)))
    """
    smallest = min((s for s, c in zip(sizes, counts, strict=True) if c), default=max_length + 1)
    rows = _Groups(smallest, cap)
    for group in started:
        rows.put(group)
    for index, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        left = count
        while left:
            group = rows.pop(size) or Group(left, max_length, 0, ())
            left = rows.fill(group, index, size, left)
    return Patterns.of((group.content, group.rows) for group in rows.all())


class _Groups:
    """Groups of rows in buckets by free space."""

    def __init__(self, smallest: int, cap: int) -> None:
        self._smallest = smallest
        self._cap = cap
        self._closed: list[Group] = []
        self._buckets: dict[int, list[Group]] = {}
        self._spaces: list[int] = []

    def all(self) -> list[Group]:
        """Every group that holds something."""
        still_open = [group for space in self._spaces for group in self._buckets[space]]
        return self._closed + still_open

    def put(self, group: Group) -> None:
        """Keep the group; one that can take nothing more is closed, an empty one forgotten."""
        if not group.held or not group.rows:
            return
        if group.space < self._smallest or group.held >= self._cap:
            self._closed.append(group)
            return
        bucket = self._buckets.setdefault(group.space, [])
        if not bucket:
            insort(self._spaces, group.space)
        insort(bucket, group, key=lambda other: -other.held)

    def pop(self, size: int) -> Group | None:
        """Remove and return the group with the least space that holds this size."""
        tightest = bisect_left(self._spaces, size)
        if tightest == len(self._spaces):
            return None
        bucket = self._buckets[self._spaces[tightest]]
        group = bucket.pop()
        if not bucket:
            del self._spaces[tightest]
        return group

    def fill(self, group: Group, index: int, size: int, count: int) -> int:
        """Give the rows of a group as many fragments as they hold; return how many are left."""
        per_row = min(group.space // size, self._cap - group.held)
        full = min(group.rows, count // per_row)
        rest = 0 if full == group.rows else count - full * per_row
        self.put(group.take(full, index, size, per_row))
        if rest:
            self.put(group.take(1, index, size, rest))
        self.put(group._replace(rows=group.rows - full - (rest > 0)))
        return count - full * per_row - rest


class Stock:
    """How many fragments of each decreasing size are left to place."""

    def __init__(self, sizes: list[int], counts: list[int]) -> None:
        self.sizes = sizes
        self.counts = counts
        self._next = list(range(len(counts) + 1))

    def serve(self, group: Group, first: int) -> list[Group]:
        """The rows of a group, after each took the largest fragment left from size ``first`` on.

        Where the sizes of a class are used up smaller ones are taken, as the transfers of the
        program assume: its patterns have at least as much room for every size as there are
        fragments.
        """
        parts = []
        index = self._largest_left(first)
        while group.rows and index < len(self.sizes) and self.sizes[index] <= group.space:
            served = min(group.rows, self.counts[index])
            self.counts[index] -= served
            parts.append(group.take(served, index, self.sizes[index], 1))
            group = group._replace(rows=group.rows - served)
            index = self._largest_left(index)
        return [*parts, group] if group.rows else parts

    def _largest_left(self, index: int) -> int:
        """The first size from here on with fragments left, or one past the end."""
        end = index
        while end < len(self.counts) and not self.counts[end]:
            end = max(end + 1, self._next[end])
        self._next[index] = end
        return end
