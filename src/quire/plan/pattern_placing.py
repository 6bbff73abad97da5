"""From patterns of classes back to rows of real sizes."""

from __future__ import annotations

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.pattern_classes import Classes
from quire.plan.pattern_fill import Group, fill
from quire.plan.pattern_problem import Fragments
from quire.plan.patterns import Patterns


def place(
    fragments: Fragments,
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
    shelf = _Shelf(fragments, classes)
    started: list[Group] = []
    for index in np.argsort(-rows, kind="stable").tolist():
        kinds = np.repeat(np.arange(numbers.shape[1]), numbers[index]).tolist()
        groups = [Group(int(rows[index]), fragments.capacity, 0, ())]
        for kind in kinds[: len(kinds) - open_places]:
            # Turned round each time, so that the larger sizes of one class meet the smaller ones
            # of the next.
            groups = [part for group in reversed(groups) for part in shelf.serve(group, kind)]
        started += groups
    return fill(shelf.sizes, shelf.counts, fragments.capacity, fragments.cap, started)


class _Shelf:
    """What is left of every size."""

    def __init__(self, fragments: Fragments, classes: Classes) -> None:
        self.sizes: list[int] = fragments.sizes.tolist()
        self.counts: list[int] = fragments.counts.tolist()
        self._first: list[int] = classes.first.tolist()
        self._next = list(range(len(self.counts) + 1))

    def serve(self, group: Group, kind: int) -> list[Group]:
        """The rows of a group, after each took the largest fragment left of the class.

        Where the class is used up smaller ones are taken, as the program's transfers foresee: its
        patterns have at least as many places for every size as there are fragments.
        """
        parts = []
        index = self._largest_left(self._first[kind])
        while group.rows and index < len(self.sizes) and self.sizes[index] <= group.space:
            served = min(group.rows, self.counts[index])
            self.counts[index] -= served
            parts.append(group.take(served, index, self.sizes[index], 1))
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
