"""Rows that can still take something, kept as runs of rows with a common history.

`deal_all` is the loop that best-fit and first-fit share; they differ in which space they look for,
and that is the business of the index they bring.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol, TypeAlias

Run: TypeAlias = tuple[int, int, int]
"""First row, number of rows, fragments that each of them holds."""


class SpaceIndex(Protocol):
    """Knows which spaces have rows, and which of them a strategy takes next."""

    def put(self, space: int, oldest_row: int) -> None:
        """Rows with this space are there, the oldest of them is this."""

    def remove(self, space: int) -> None:
        """No row has this space any longer."""

    def find(self, size: int) -> int:
        """The space into which a fragment of this size goes, or 0 for a new row."""


def deal_all(
    sizes: list[int], counts: list[int], capacity: int, cap: int, index: SpaceIndex
) -> tuple[list[int], int]:
    """Runs over the decreasing order (see `rows_from_runs`), and the number of rows."""
    if not sizes:
        return [], 0
    rows = OpenRows(smallest=sizes[-1], cap=cap, index=index)
    find = index.find
    for size, count in zip(sizes, counts, strict=True):
        left = count
        while left:
            space = find(size)
            if space:
                left = rows.deal(rows.pop(space), space, size, left)
            else:
                fresh = rows.open(-(-left // min(capacity // size, cap)))
                left = rows.deal(fresh, capacity, size, left)
    return rows.runs, rows.num_rows


class OpenRows:
    """Runs of rows in buckets by space left, the oldest run of a bucket first."""

    __slots__ = ("_buckets", "_cap", "_index", "_smallest", "num_rows", "runs")

    def __init__(self, smallest: int, cap: int, index: SpaceIndex) -> None:
        self.runs: list[int] = []
        self.num_rows = 0
        self._smallest = smallest
        self._cap = cap
        self._index = index
        self._buckets: dict[int, list[Run]] = {}

    def open(self, num_rows: int) -> Run:
        """A run of new, empty rows."""
        first = self.num_rows
        self.num_rows += num_rows
        return first, num_rows, 0

    def pop(self, space: int) -> Run:
        """The oldest run of rows with this space, taken out."""
        bucket = self._buckets[space]
        run = heappop(bucket)
        if bucket:
            self._index.put(space, bucket[0][0])
        else:
            self._index.remove(space)
        return run

    def deal(self, run: Run, space: int, size: int, count: int) -> int:
        """Give fragments of one size to the rows of a run, and put the rows back; how many of the
        fragments are left."""
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

    def _push(self, space: int, run: Run) -> None:
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
