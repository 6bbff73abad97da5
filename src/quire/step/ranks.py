"""Groups to ranks: about as many rows on each, and as even a cost as that allows."""

from __future__ import annotations

import numpy as np

from quire.plan.exchange import exchanged, whole_costs, whole_sums
from quire.plan.lengths import IntArray
from quire.step.rows import fewest_rows

_ROW = 2**20
"""The weight of one row."""
_FULL = int(0.995 * _ROW)
"""A rank whose weight is this for each of its rows usually fits into them."""
_WORK = 50_000
"""Units that may be packed again to try swaps of groups."""
_OWN, _OTHERS = 256, 1024
"""Groups of a rank, and of the others, among which swaps are looked for."""


class GroupedRanks:
    """The search for the rank of every group.

    A unit weighs what it takes of its row when all units are packed together, so that the weight of
    a rank is about the number of its rows.
    """

    def __init__(
        self,
        sizes: IntArray,
        costs: IntArray,
        limits: IntArray,
        num_ranks: int,
        groups: IntArray,
    ) -> None:
        self._sizes, self._limits, self._num_ranks = sizes, limits, num_ranks
        _, self._group = np.unique(groups, return_inverse=True)
        self._weights = whole_sums(self._group, _shares_of_rows(sizes, limits))
        self._costs = whole_sums(self._group, costs)
        self._tries = _WORK * num_ranks // (2 * max(1, len(sizes)))

    def find(self, least_rows: int) -> list[IntArray]:
        """The rank of every unit, in the ways whose fullest rank has fewest rows.

        No way has a rank of fewer than ``least_rows``.
        """
        groups = np.arange(len(self._weights))
        even_rows = self._exchanged(groups % self._num_ranks, self._weights, self._weights.sum())
        most = self._most(even_rows)
        most = max(most, _FULL * max(least_rows, -(-most // _ROW)))
        even_costs = self._exchanged(even_rows, self._costs, most)
        found = [self._repaired(ranks, least_rows) for ranks in (even_costs, even_rows)]
        fewest = min(most_rows for _, most_rows in found)
        return [ranks[self._group] for ranks, most_rows in found if most_rows == fewest]

    def _most(self, ranks: IntArray) -> int:
        return int(whole_sums(ranks, self._weights).max())

    def _exchanged(self, ranks: IntArray, costs: IntArray, most: int) -> IntArray:
        """Ranks whose costs are even, none with more than a weight."""
        zone, limits = np.zeros(self._num_ranks, dtype=np.int64), np.array([most])
        costs = whole_costs(costs.astype(np.float64), self._num_ranks)
        return exchanged(self._weights[:, None], costs, limits, zone, self._num_ranks, [ranks])

    def _repaired(self, ranks: IntArray, least_rows: int) -> tuple[IntArray, int]:
        """The ranks after swaps of groups that save the fullest rank a row, and its rows."""
        rows = [self._rows(ranks, rank) for rank in range(self._num_ranks)]
        tries = self._tries
        while max(rows) > least_rows and tries > 0:
            worst, most = rows.index(max(rows)), max(rows) - 1
            for first, second in self._swaps(ranks, worst, most, np.array(rows))[:tries]:
                tries -= 1
                swapped = ranks.copy()
                swapped[[first, second]] = ranks[[second, first]]
                other = int(ranks[second])
                both = [self._rows(swapped, rank) for rank in (worst, other)]
                if max(both) <= most:
                    ranks, (rows[worst], rows[other]) = swapped, both
                    break
            else:
                break
        return ranks, max(rows)

    def _swaps(self, ranks: IntArray, worst: int, most: int, rows: IntArray) -> IntArray:
        """Pairs of a group of the fullest rank and another, those that leave most room first."""
        own = np.flatnonzero(ranks == worst)[:_OWN]
        others = np.flatnonzero((ranks != worst) & (rows[ranks] <= most))[:_OTHERS]
        room = most * _ROW - whole_sums(ranks, self._weights, self._num_ranks)
        moved = self._weights[own][:, None] - self._weights[others]
        slack = np.minimum(room[worst] + moved, room[ranks[others]] - moved)
        first, second = np.divmod(np.argsort(-slack, axis=None, kind="stable"), max(1, len(others)))
        return np.stack([own[first], others[second]], axis=1)

    def _rows(self, ranks: IntArray, rank: int) -> int:
        units = np.flatnonzero(ranks[self._group] == rank)
        return int(fewest_rows(self._sizes[units], self._limits).max(initial=-1)) + 1


def least_rows_on_a_rank(weights: IntArray, num_ranks: int, row: int) -> int:
    """Rows that some rank needs for groups of these weights, of which a row holds so much.

    Of any ``k * num_ranks + 1`` groups, a rank has ``k + 1``.

    >>> least_rows_on_a_rank(np.array([6, 6, 6]), num_ranks=2, row=8)
    2
    """
    sums = np.append(0, np.cumsum(np.sort(weights)[::-1]))
    several = np.arange(1, (len(weights) - 1) // num_ranks + 2)
    ends = (several - 1) * num_ranks + 1
    return -(-int((sums[ends] - sums[ends - several]).max(initial=0)) // row)


def _shares_of_rows(sizes: IntArray, limits: IntArray) -> IntArray:
    """The part that every unit has of its row if all are packed together."""
    rows = fewest_rows(sizes, limits)
    demand = np.rint((sizes / limits).max(axis=1) * _ROW).astype(np.int64)
    shares: IntArray = demand * _ROW // np.maximum(whole_sums(rows, demand), 1)[rows]
    return shares
