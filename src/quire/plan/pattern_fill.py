"""Best-fit decreasing into rows that may hold something already, on kinds of rows."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

from quire.plan.patterns import Pattern, Patterns


class Group(NamedTuple):
    """Rows that are all alike."""

    rows: int
    space: int
    """What each row still has."""
    held: int
    """How many fragments each row holds."""
    content: Pattern

    def take(self, rows: int, size_index: int, size: int, number: int) -> Group:
        """Some of these rows, after each took a number of fragments of one size."""
        content = (*self.content, (size_index, number))
        return Group(rows, self.space - number * size, self.held + number, content)


def fill(
    sizes: list[int], counts: list[int], capacity: int, cap: int, started: Iterable[Group] = ()
) -> Patterns:
    """The started rows and as many new ones as it takes, filled by best-fit decreasing.

    Of rows with equal space, those that hold the fewest fragments come first.

    >>> fill([6, 4, 3], [1, 2, 1], capacity=10, cap=9)
    Patterns(contents=(((0, 1), (1, 1)), ((1, 1), (2, 1))), rows=(1, 1))
    >>> fill([6, 4, 3], [0, 2, 1], 10, 9, started=[Group(1, 3, 1, ((0, 1),))]).contents
    (((1, 2),), ((0, 1), (2, 1)))
    """
    smallest = min((s for s, c in zip(sizes, counts, strict=True) if c), default=capacity + 1)
    rows = _Groups(smallest, cap)
    for group in started:
        rows.put(group)
    for index, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        left = count
        while left:
            group = rows.pop(size) or Group(left, capacity, 0, ())
            left = rows.deal(group, index, size, left)
    return Patterns.of((group.content, group.rows) for group in rows.all())


class _Groups:
    """Groups of rows in buckets by space."""

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
        """The group with the least space that holds this size, taken out."""
        place = bisect_left(self._spaces, size)
        if place == len(self._spaces):
            return None
        bucket = self._buckets[self._spaces[place]]
        group = bucket.pop()
        if not bucket:
            del self._spaces[place]
        return group

    def deal(self, group: Group, index: int, size: int, count: int) -> int:
        """Give the rows of a group as many fragments as they hold; how many are left."""
        per_row = min(group.space // size, self._cap - group.held)
        full = min(group.rows, count // per_row)
        rest = 0 if full == group.rows else count - full * per_row
        self.put(group.take(full, index, size, per_row))
        if rest:
            self.put(group.take(1, index, size, rest))
        self.put(group._replace(rows=group.rows - full - (rest > 0)))
        return count - full * per_row - rest
