"""From patterns of classes back to rows of real sizes."""

from __future__ import annotations

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.pattern_classes import Classes
from quire.plan.pattern_fill import Group, fill
from quire.plan.patterns import Patterns


def place(
    sizes: IntArray,
    counts: IntArray,
    capacity: int,
    cap: int,
    classes: Classes,
    numbers: IntArray,
    rows: IntArray,
    *,
    open_places: int,
) -> Patterns:
    """Rows after patterns of classes, completed by best-fit decreasing.

    A class has more than one size, so the last ``open_places`` of a pattern, its smallest ones, are
    not filled from their class: best-fit finds the size that closes what the others really left.
    """
    shelf = _Shelf(sizes, counts, classes)
    started: list[Group] = []
    for index in np.argsort(-rows, kind="stable").tolist():
        kinds = np.repeat(np.arange(numbers.shape[1]), numbers[index]).tolist()
        groups = [Group(int(rows[index]), capacity, 0, ())]
        for kind in kinds[: len(kinds) - open_places]:
            # Turned round each time, so that the larger sizes of one class meet the smaller ones
            # of the next.
            groups = [part for group in reversed(groups) for part in shelf.serve(group, kind)]
        started += groups
    return fill(sizes.tolist(), shelf.counts, capacity, cap, started)


class _Shelf:
    """What is left of every size."""

    def __init__(self, sizes: IntArray, counts: IntArray, classes: Classes) -> None:
        self.counts: list[int] = counts.tolist()
        self._sizes: list[int] = sizes.tolist()
        self._first: list[int] = classes.first.tolist()
        self._next = list(range(len(counts) + 1))

    def serve(self, group: Group, kind: int) -> list[Group]:
        """The rows of a group, after each took the largest fragment left of the class.

        Where the class is used up smaller ones are taken, as the program's transfers foresee: its
        patterns have at least as many places for every size as there are fragments.
        """
        parts = []
        index = self._largest_left(self._first[kind])
        while group.rows and index < len(self._sizes) and self._sizes[index] <= group.space:
            served = min(group.rows, self.counts[index])
            self.counts[index] -= served
            parts.append(group.take(served, index, self._sizes[index], 1))
            group = group._replace(rows=group.rows - served)
            index = self._largest_left(index)
        return [*parts, group] if group.rows else parts

    def _largest_left(self, index: int) -> int:
        """The first size from here on of which there is something left, or one past the end."""
        end = index
        while end < len(self.counts) and not self.counts[end]:
            end = max(end + 1, self._next[end])
        self._next[index] = end
        return end
