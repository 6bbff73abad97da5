"""What units share decides where they may go: three ways to fill slots before the search.

`Free` units may go anywhere, those of `SameRank` anywhere on their group's rank, and those of
`SameMicroStep` only where the group is. The search exchanges units only within a zone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from quire.plan.bounds import lower_bound
from quire.plan.lengths import IntArray
from quire.step.micro_steps import GroupSwaps
from quire.step.ranks import GroupedRanks, least_rows_on_a_rank
from quire.step.rows import fewest_rows, fit_into, largest_first, last_rows, level_rows

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
        """The rows over the number of ranks."""
        self._rows = fewest_rows(self.sizes, self.limits, self.lower_bound * self.num_ranks)
        return -(-_number(self._rows) // self.num_ranks)

    def zones(self, num_steps: int) -> IntArray:
        """One zone."""
        return np.zeros(num_steps * self.num_ranks, dtype=np.int64)

    def starts(self, num_steps: int) -> list[IntArray]:
        """Rows of equal length; full rows and cheaper ones."""
        shape = num_steps, self.num_ranks
        return _spread(self._rows, self.sizes, self.costs, self.limits, shape)


class SameZone(Sharing):
    """Units whose groups are in one zone each: a rank or a micro-step."""

    _ways: list[tuple[IntArray, IntArray]]
    """Zone and row within it of every unit, in one or several ways."""

    @abstractmethod
    def slots(self, zone: IntArray, row: IntArray) -> IntArray:
        """The slots of rows, from a zone and a row in it."""

    @abstractmethod
    def zone_shape(self, num_steps: int) -> tuple[int, int]:
        """Micro-steps and ranks of a zone."""

    def starts(self, num_steps: int) -> list[IntArray]:
        """The rows of every zone, made even."""
        shape = self.zone_shape(num_steps)
        return [self._spread_in_zones(zone, row, shape) for zone, row in self._ways]

    def _spread_in_zones(self, zone: IntArray, row: IntArray, shape: tuple[int, int]) -> IntArray:
        slots = np.empty(len(zone), dtype=np.int64)
        for units in _members(zone):
            sizes, costs = self.sizes[units], self.costs[units]
            spread = _spread(row[units], sizes, costs, self.limits, shape)[-1]
            slots[units] = self.slots(zone[units], spread)
        return slots


class SameRank(SameZone):
    """Units whose groups are on one rank each."""

    def __init__(
        self,
        sizes: IntArray,
        costs: IntArray,
        limits: IntArray,
        num_ranks: int,
        groups: IntArray,
        given: IntArray,
    ) -> None:
        """Prepare units of which some, ``given >= 0``, have a rank already."""
        super().__init__(sizes, costs, limits, num_ranks)
        weights = [*zip(sizes.T, limits, strict=True), (_halves(sizes[:, 0], limits[0]), 2)]
        needed = [
            least_rows_on_a_rank(np.bincount(groups, weight), num_ranks, int(row))
            for weight, row in weights
        ]
        self.lower_bound = max(self.lower_bound, *needed)
        ways = [given]
        if (given < 0).any():
            search = GroupedRanks(sizes, costs, limits, num_ranks, groups)
            ways = search.find(self.lower_bound)
        self._ways = [(ranks, self._rows(ranks)) for ranks in ways]

    def _rows(self, ranks: IntArray) -> IntArray:
        """The row of every unit on its rank."""
        rows = np.empty(len(ranks), dtype=np.int64)
        for units in _members(ranks):
            rows[units] = fewest_rows(self.sizes[units], self.limits)
        return rows

    def least_steps(self) -> int:
        """The rows of the rank that has most."""
        return min(_number(rows) for _, rows in self._ways)

    def zones(self, num_steps: int) -> IntArray:
        """Each rank is a zone."""
        return np.tile(np.arange(self.num_ranks), num_steps)

    def zone_shape(self, num_steps: int) -> tuple[int, int]:
        """All micro-steps of one rank."""
        return num_steps, 1

    def slots(self, zone: IntArray, row: IntArray) -> IntArray:
        """A row of rank r is a micro-step."""
        return row * self.num_ranks + zone


class SameMicroStep(SameZone):
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
        parts = _members(groups)
        parts = [part[largest_first(sizes[part])] for part in parts]
        tokens = np.array([int(sizes[part, 0].sum()) for part in parts])
        bound = lower_bound(tokens, num_ranks * int(limits[0]))
        self.lower_bound = max(self.lower_bound, bound)
        self._groups = [parts[group] for group in np.argsort(-tokens, kind="stable")]

    def least_steps(self) -> int:
        """The first number of micro-steps, from the bound on, in which all groups fit."""
        fails, fits, further = self.lower_bound - 1, self.lower_bound, 1
        while not self._fits(fits):
            fails, fits, further = fits, fits + further, 2 * further
        while fits - fails > 1:
            middle = (fails + fits) // 2
            if self._fits(middle):
                fits = middle
            else:
                fails = middle
        return fits

    def zones(self, num_steps: int) -> IntArray:
        """Each micro-step is a zone."""
        return np.repeat(np.arange(num_steps), self.num_ranks)

    def zone_shape(self, num_steps: int) -> tuple[int, int]:
        """All ranks of one micro-step."""
        return 1, self.num_ranks

    def slots(self, zone: IntArray, row: IntArray) -> IntArray:
        """A row of a micro-step is a rank."""
        return zone * self.num_ranks + row

    def starts(self, num_steps: int) -> list[IntArray]:
        """The groups as they were found to fit, or over more micro-steps, after swaps."""
        self._fits(num_steps)
        for steps, rows in self._ways:
            swaps = GroupSwaps(self._groups, self.sizes, self.costs, self.limits, self.num_ranks)
            swaps.make(steps, rows)
        return super().starts(num_steps)

    def _fits(self, num_steps: int) -> bool:
        """Whether all groups found a place in this many micro-steps; the places are then kept."""
        placed = [self._place(num_steps, fullest_first) for fullest_first in (False, True)]
        if found := [way for way in placed if way is not None]:
            self._ways = found
        return bool(found)

    def _place(self, num_steps: int, fullest_first: bool) -> tuple[IntArray, IntArray] | None:
        """Micro-step and row of every unit, largest group first."""
        steps, rows = np.empty((2, len(self.costs)), dtype=np.int64)
        space = np.broadcast_to(self.limits, (num_steps, self.num_ranks, len(self.limits))).copy()
        free = space[:, :, 0].sum(axis=1)
        for members in self._groups:
            tokens = int(self.sizes[members, 0].sum())
            with_room = np.flatnonzero(free >= tokens)
            order = free[with_room] if fullest_first else -free[with_room]
            for step in with_room[np.argsort(order, kind="stable")]:
                placed = fit_into(space[step], self.sizes[members])
                if placed is not None:
                    steps[members], rows[members] = step, placed
                    free[step] -= tokens
                    break
            else:
                return None
        return steps, rows


def _halves(sizes: IntArray, limit: int) -> IntArray:
    """2 for what takes more than half of a row, 1 for half a row: no row has more than 2."""
    return np.sign(2 * sizes - limit) + 1


def _members(labels: IntArray) -> list[IntArray]:
    """The units of each label."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


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
