"""What units share decides where they may go: three ways to fill slots before the search.

`Free` units may go anywhere, those of `SameRank` anywhere on their group's rank, and those of
`SameMicroStep` only where the group is. The search exchanges units only within a zone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from quire.plan.bounds import lower_bound
from quire.plan.lengths import IntArray
from quire.step.rows import evenly, fewest_rows, fit_into, largest_first, last_rows, level_rows

_FEW = 1024
"""Up to this many units both ways to use spare rows are tried."""


class Sharing(ABC):
    """Units of one kind, to be placed in the slots of some micro-steps."""

    def __init__(self, sizes: IntArray, costs: IntArray, limits: IntArray, num_ranks: int) -> None:
        self.sizes, self.costs, self.limits = sizes, costs, limits
        self.num_ranks = num_ranks
        rows = max(
            lower_bound(column[column > 0], int(limit))
            for column, limit in zip(sizes.T, limits, strict=True)
        )
        self.lower_bound = -(-rows // num_ranks)
        """Micro-steps that no plan can go below."""

    @abstractmethod
    def least_steps(self) -> int:
        """The fewest micro-steps that were found."""

    @abstractmethod
    def zones(self, num_steps: int) -> IntArray:
        """The zone of every slot."""

    @abstractmethod
    def starts(self, num_steps: int) -> list[IntArray]:
        """Slots of the units, in one or several ways, each of them valid."""


class Free(Sharing):
    """Units that may be in any slot."""

    def least_steps(self) -> int:
        """Best-fit decreasing over the number of ranks."""
        self._rows = fewest_rows(self.sizes, self.limits)
        return -(-_number(self._rows) // self.num_ranks)

    def zones(self, num_steps: int) -> IntArray:
        """One zone."""
        return np.zeros(num_steps * self.num_ranks, dtype=np.int64)

    def starts(self, num_steps: int) -> list[IntArray]:
        """Rows of equal length; full rows and cheaper ones."""
        shape = num_steps, self.num_ranks
        return _spread(self._rows, self.sizes, self.costs, self.limits, shape)


class SameRank(Sharing):
    """Units whose groups are on one rank each."""

    def __init__(
        self,
        sizes: IntArray,
        costs: IntArray,
        limits: IntArray,
        num_ranks: int,
        rank: IntArray,
    ) -> None:
        super().__init__(sizes, costs, limits, num_ranks)
        self._members = [np.flatnonzero(rank == number) for number in range(num_ranks)]

    def least_steps(self) -> int:
        """The rows of the rank that has most."""
        self._rows = [fewest_rows(self.sizes[units], self.limits) for units in self._members]
        return max(map(_number, self._rows))

    def zones(self, num_steps: int) -> IntArray:
        """Each rank is a zone."""
        return np.tile(np.arange(self.num_ranks), num_steps)

    def starts(self, num_steps: int) -> list[IntArray]:
        """The rows of every rank, in the order of their cost."""
        slots = np.empty(len(self.costs), dtype=np.int64)
        for rank, (units, rows) in enumerate(zip(self._members, self._rows, strict=True)):
            if len(units):
                costs = self.costs[units]
                spread = _spread(rows, self.sizes[units], costs, self.limits, (num_steps, 1))[0]
                slots[units] = spread * self.num_ranks + rank
        return [slots]


class SameMicroStep(Sharing):
    """Units whose groups are in one micro-step each."""

    def __init__(
        self,
        sizes: IntArray,
        costs: IntArray,
        limits: IntArray,
        num_ranks: int,
        groups: IntArray,
    ) -> None:
        super().__init__(sizes, costs, limits, num_ranks)
        order = np.argsort(groups, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
        parts = [part[largest_first(sizes[part])] for part in parts]
        self._groups = sorted(parts, key=lambda part: -int(sizes[part, 0].sum()))

    def least_steps(self) -> int:
        """The first number of micro-steps, from the bound on, in which all groups fit."""
        num_steps = self.lower_bound
        while (slots := self._place(num_steps)) is None:
            num_steps += 1
        self._slots = slots
        return num_steps

    def zones(self, num_steps: int) -> IntArray:
        """Each micro-step is a zone."""
        return np.repeat(np.arange(num_steps), self.num_ranks)

    def starts(self, num_steps: int) -> list[IntArray]:
        """Groups in the emptiest micro-steps."""
        slots = self._place(num_steps)
        return [self._slots if slots is None else slots]

    def _place(self, num_steps: int) -> IntArray | None:
        """Slots, largest group first, each in the emptiest micro-step that has room for it."""
        slots = np.empty(len(self.costs), dtype=np.int64)
        space = np.broadcast_to(self.limits, (num_steps, self.num_ranks, len(self.limits))).copy()
        for members in self._groups:
            for step in np.argsort(-space[:, :, 0].sum(axis=1), kind="stable"):
                rows = fit_into(space[step], self.sizes[members])
                if rows is not None:
                    slots[members] = step * self.num_ranks + rows
                    break
            else:
                return None
        return slots


def ranks_of_groups(
    sizes: IntArray, groups: IntArray, limits: IntArray, num_ranks: int
) -> IntArray:
    """The rank of every unit: groups by the longest-processing-time rule over their tokens."""
    tokens = np.bincount(groups, sizes[:, 0]).astype(np.int64)
    rank_of_group = evenly(tokens[:, None][:, :0], tokens, limits[:0], num_ranks)
    return np.zeros(0, dtype=np.int64) if rank_of_group is None else rank_of_group[groups]


def _number(rows: IntArray) -> int:
    return int(rows.max(initial=-1)) + 1


def _spread(
    rows: IntArray, sizes: IntArray, costs: IntArray, limits: IntArray, shape: tuple[int, int]
) -> list[IntArray]:
    """Rows of equal length, full rows with some cheaper ones, or else the rows as they are."""
    found = [last_rows(rows, sizes, costs, limits, shape)]
    if len(limits) == 1 and (len(sizes) <= _FEW or found[0] is None):
        found.append(level_rows(sizes[:, 0], int(limits[0]), shape[0] * shape[1]))
    return [spread for spread in found if spread is not None] or [rows]
