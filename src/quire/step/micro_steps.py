"""Groups to micro-steps: swaps of groups, so that costly sequences share micro-steps.

A micro-step takes as long as its most expensive row, which costs at least as much as its most
expensive unit. Exchanges of units do not change that; swaps of groups do.
"""

from __future__ import annotations

import numpy as np

from quire.plan.exchange import whole_sums
from quire.plan.lengths import IntArray
from quire.step.rows import fit_into, largest_first

_MOST_GROUPS = 1024
"""More groups are left where they are: all pairs are compared."""
_ROUNDS = 20
_TRIES = 500
"""Swaps whose rows are made, to see whether they fit."""


class GroupSwaps:
    """The search for swaps; all units of a group are in one micro-step."""

    def __init__(
        self,
        groups: list[IntArray],
        sizes: IntArray,
        costs: IntArray,
        limits: IntArray,
        num_ranks: int,
    ) -> None:
        self._groups, self._sizes = groups, sizes
        self._space = np.tile(limits, (num_ranks, 1))
        self._tokens = np.array([sizes[group].sum(axis=0) for group in groups])
        self._costs = np.array([int(costs[group].sum()) for group in groups])
        self._largest = np.array([int(costs[group].max()) * num_ranks for group in groups])
        self._tries = _TRIES

    def make(self, steps: IntArray, rows: IntArray) -> None:
        """Swap groups; ``steps`` and ``rows`` of the units are changed in place."""
        for _ in range(_ROUNDS if len(self._groups) <= _MOST_GROUPS else 0):
            changed: set[int] = set()
            of_group = np.array([steps[group[0]] for group in self._groups])
            for pair in self._pairs(of_group):
                both = {int(of_group[group]) for group in pair}
                if not both & changed and self._swap(pair, steps, rows):
                    changed |= both
                if not self._tries:
                    return
            if not changed:
                return

    def _pairs(self, steps: IntArray) -> IntArray:
        """Pairs of groups whose swap saves time, the best first."""
        costs = whole_sums(steps, self._costs)
        alone, first = np.zeros(len(steps), dtype=bool), np.lexsort((-self._largest, steps))
        alone[first[np.unique(steps[first], return_index=True)[1]]] = True
        most, next_most = np.zeros((2, len(costs)), dtype=np.int64)
        np.maximum.at(most, steps, self._largest)
        np.maximum.at(next_most, steps[~alone], self._largest[~alone])
        others = np.where(alone, next_most[steps], most[steps])
        rest = costs[steps] - self._costs
        # [i, j]: the micro-step of group i with j in its place.
        after = np.maximum(others[:, None], self._largest)
        after = np.maximum(after, rest[:, None] + self._costs)
        before = np.maximum(most, costs)[steps]
        gain = before[:, None] + before - after - after.T
        gain[(steps[:, None] == steps) | self._too_large(steps)] = 0
        found = np.flatnonzero(np.triu(gain) > 0)
        found = found[np.argsort(-gain.ravel()[found], kind="stable")]
        return np.stack(np.divmod(found, len(steps)), axis=1)

    def _too_large(self, steps: IntArray) -> IntArray:
        """Whether the tokens of two groups are too many for each other's micro-steps."""
        large = np.zeros((len(steps), len(steps)), dtype=bool)
        for tokens, limit in zip(self._tokens.T, self._space.sum(axis=0), strict=True):
            room = limit - whole_sums(steps, tokens)[steps] + tokens
            large |= (tokens > room[:, None]) | (tokens > room[:, None]).T
        return large

    def _swap(self, pair: IntArray, steps: IntArray, rows: IntArray) -> bool:
        """Swap two groups if the rows of both micro-steps can be made."""
        self._tries -= 1
        first, second = (self._groups[group] for group in pair)
        here, there = steps[first[0]], steps[second[0]]
        swapped = steps.copy()
        swapped[first], swapped[second] = there, here
        new = rows.copy()
        for step in (here, there):
            units = np.flatnonzero(swapped == step)
            units = units[largest_first(self._sizes[units])]
            found = fit_into(self._space.copy(), self._sizes[units])
            if found is None:
                return False
            new[units] = found
        steps[:], rows[:] = swapped, new
        return True
