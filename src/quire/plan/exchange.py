"""Exchanges of items between rows, so that all rows of a step cost the same: a vectorised search.

Rows fill slots, ``num_ranks`` of them to a step, and all ranks wait for the most expensive row of
a step. What counts is the sum over steps of that row's cost. The search moves every row towards the
mean of its step: a swap of two items is good if it lowers the sum of squared distances. Two kinds
of moves take turns:

- swaps of two items of similar cost, all of them in one matrix: each item with the next ones in
  decreasing order; of the good swaps, those are made that are the best of both their rows;
- two rows at a time, one too expensive and one too cheap, divided again in the best of all ways to
  divide a few of their items.

After every round rows are sorted into steps again. All arithmetic is on integers (costs are rounded
to 24 bits), so that the result is the same on every machine, whatever its vector instructions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from quire.plan.lengths import FloatArray, IntArray

_BITS = 24
_FEW = 1024
"""Up to this many items the search takes its time: about 30 ms for 512 items, 30 ms for 4,096."""
_SWAPS = 4
"""Rounds of swaps to each round of divisions."""
_NEVER = np.int64(1) << 62
"""More than any size: what would not fit anywhere."""


def exchanged(
    sizes: IntArray,
    costs: IntArray,
    limits: IntArray,
    zones: IntArray,
    num_ranks: int,
    starts: Sequence[IntArray],
) -> IntArray:
    """The best slots found from any of the starts; for the arguments see `Exchange`."""
    few = len(costs) <= _FEW
    reach, free, rounds = (64, 4, 20) if few else (16, 3, 5)
    search = Exchange(sizes, costs, limits, zones, num_ranks, reach=reach, free=free)
    found = [search.run(start, rounds) for start in starts]
    return min(found, key=lambda result: result[1])[0]


class Exchange:
    """Items in rows, rows in steps; `run` exchanges items until the steps are even."""

    def __init__(
        self,
        sizes: IntArray,
        costs: IntArray,
        limits: IntArray,
        zones: IntArray,
        num_ranks: int,
        *,
        reach: int = 64,
        free: int = 4,
    ) -> None:
        """Prepare the search.

        ``sizes`` is [items, budgets], ``limits`` what a row holds of each budget, ``costs`` come
        from `whole_costs`. ``zones[slot]`` says which slots, in the order of steps and ranks, may
        exchange items. ``reach`` is how many cheaper items each is compared with, ``free`` how many
        items of each of two rows are divided again.
        """
        self._sizes, self._costs, self._limits = sizes, costs, limits
        self._zones, self._num_ranks = zones, num_ranks
        self._slots = np.argsort(zones, kind="stable")
        self._reach, self._free = min(reach, len(costs)), free
        self._num_rows = len(zones)

    def run(self, row_of: IntArray, rounds: int) -> tuple[IntArray, int]:
        """The best rows found, as the slot of every item, and the sum of the highest costs.

        Items start in the rows ``row_of``; a row's number gives its zone.
        """
        self._begin(row_of)
        best, slots = self._value(), self._slot_of()
        for number in range(rounds):
            swapped = [self._swap() for _ in range(_SWAPS)]
            changed = self._divide(number) or any(swapped)
            self._arrange()
            value = self._value()
            if value < best:
                best, slots = value, self._slot_of()
            if not changed:
                break
        return slots, best

    def _begin(self, row_of: IntArray) -> None:
        zone_of = self._zones[row_of]
        self._order = np.lexsort((-self._costs, zone_of))
        self._row = row_of[self._order].astype(np.int64)
        self._size, self._cost = self._sizes[self._order], self._costs[self._order]
        self._add_up()
        zone = zone_of[self._order]
        self._cheaper = self._cost[:, None] - self._next(self._cost)
        self._smaller = self._size[:, None] - self._next(self._size)
        self._may_grow = [bool((part < 0).any()) for part in np.moveaxis(self._smaller, 2, 0)]
        self._smaller[zone[:, None] != self._next(zone, fill=-1), 0] = _NEVER
        self._arrange()

    def _next(self, values: IntArray, fill: int = 0) -> IntArray:
        """For each item the values of the ones that follow: a view, [items, reach, ...]."""
        tail = np.full((self._reach, *values.shape[1:]), fill, dtype=values.dtype)
        padded = np.concatenate([values, tail])
        shape = len(values), self._reach, *values.shape[1:]
        step = padded.strides[0]
        return np.ndarray(shape, values.dtype, padded, step, (step, *padded.strides))

    def _add_up(self) -> None:
        rows = self._num_rows
        self._load = whole_sums(self._row, self._cost, rows)
        self._space = np.empty((rows, len(self._limits)), dtype=np.int64)
        for budget, limit in enumerate(self._limits):
            self._space[:, budget] = limit - whole_sums(self._row, self._size[:, budget], rows)

    def _arrange(self) -> None:
        """Sort the rows of each zone into its slots; the mean of its step is every row's target."""
        self._at = np.empty(self._num_rows, dtype=np.int64)
        self._at[np.lexsort((-self._load, self._zones))] = self._slots
        in_steps = np.empty_like(self._load)
        in_steps[self._at] = self._load
        steps = in_steps.reshape(-1, self._num_ranks)
        self._most = steps.max(axis=1)
        mean = steps.sum(axis=1) // self._num_ranks
        self._excess = self._load - mean[self._at // self._num_ranks]

    def _value(self) -> int:
        return int(self._most.sum())

    def _slot_of(self) -> IntArray:
        slots = np.empty(len(self._row), dtype=np.int64)
        slots[self._order] = self._at[self._row]
        return slots

    def _swap(self) -> bool:
        """Make the best swaps that do not touch each other."""
        excess, space = self._excess[self._row], self._space[self._row]
        gain = excess[:, None] - self._next(excess)
        gain -= self._cheaper
        gain *= self._cheaper
        space_after = self._next(space)
        for budget, grows in enumerate(self._may_grow):
            smaller = self._smaller[:, :, budget]
            gain[smaller > space_after[:, :, budget]] = 0
            if grows:
                gain[-smaller > space[:, budget, None]] = 0
        other = gain.argmax(axis=1)
        best = np.take_along_axis(gain, other[:, None], axis=1)[:, 0]
        first = np.flatnonzero(best > 0)
        first = first[np.argsort(-best[first], kind="stable")]
        second = first + 1 + other[first]
        kept = _apart(self._row[first], self._row[second], self._num_rows)
        self._exchange(first[kept], second[kept])
        return bool(len(kept))

    def _exchange(self, first: IntArray, second: IntArray) -> None:
        here, there = self._row[first], self._row[second]
        self._row[first], self._row[second] = there, here
        cost = self._cost[first] - self._cost[second]
        size = self._size[first] - self._size[second]
        for rows, sign in ((here, 1), (there, -1)):
            self._load[rows] -= sign * cost
            self._excess[rows] -= sign * cost
            self._space[rows] += sign * size

    def _divide(self, number: int) -> bool:
        """Divide the items of pairs of rows anew, rows above their target with rows below."""
        pairs = self._pairs(number)
        items = np.concatenate([self._some_items(rows, number) for rows in pairs], axis=1)
        here, there = pairs
        splits, held = _splits(2 * self._free), slice(self._free)
        cost, size = _padded(self._cost)[items], _padded(self._size)[items]
        # Half the difference should leave the first row; a change of its cost is tried per split.
        half = (self._excess[here] - self._excess[there]) / 2
        change = cost.astype(np.float64) @ splits
        change += (half - cost[:, held].sum(axis=1))[:, None]
        distance = np.abs(change, out=change)
        for budget in range(size.shape[2]):
            part = size[:, :, budget].astype(np.float64)
            own = part[:, held].sum(axis=1)
            used = part @ splits
            most, least = own + self._space[here, budget], own - self._space[there, budget]
            distance[(used > most[:, None]) | (used < least[:, None])] = np.inf
        split = distance.argmin(axis=1)
        better = np.take_along_axis(distance, split[:, None], axis=1)[:, 0] < np.abs(half) - 0.5
        if not better.any():
            return False
        to_first = splits.T[split[better]] > 0
        rows = np.where(to_first, here[better, None], there[better, None])
        moved = items[better]
        real = moved < len(self._row)
        self._row[moved[real]] = rows[real]
        self._add_up()
        return True

    def _pairs(self, number: int) -> tuple[IntArray, IntArray]:
        """The rows most above their target, with those most below it; every other time shifted."""
        by_excess = np.lexsort((-self._excess, self._zones))
        counts = np.bincount(self._zones)
        counts = counts[counts > 0]
        half = counts // 2
        begins = np.repeat(np.cumsum(counts) - counts, half)
        ends = np.repeat(np.cumsum(counts) - 1, half)
        index = np.arange(half.sum()) - np.repeat(np.cumsum(half) - half, half)
        width = np.repeat(half, half)
        shifted = (index + number * 7 * (number % 2)) % np.maximum(width, 1)
        return by_excess[begins + index], by_excess[ends - shifted]

    def _some_items(self, rows: IntArray, number: int) -> IntArray:
        """A few items of each row, others each time; the number of all items stands for none."""
        by_row = np.argsort(self._row, kind="stable")
        counts = np.bincount(self._row, minlength=self._num_rows)
        begins = (np.cumsum(counts) - counts)[rows][:, None]
        held, index = counts[rows][:, None], np.arange(self._free)
        place = begins + (index + number) % np.maximum(held, 1)
        some = by_row[np.minimum(place, len(by_row) - 1)]
        return np.where(index < held, some, len(by_row))


def whole_costs(costs: FloatArray, num_rows: int) -> IntArray:
    """The costs as integers small enough that products of two sums of a row fit into 64 bits.

    >>> whole_costs(np.array([1.0, 0.5, 0.0]), num_rows=1).tolist()
    [8388608, 4194304, 0]
    """
    largest = max(float(costs.max(initial=0)), math.fsum(costs.tolist()) / max(1, num_rows))
    if not largest:
        return np.zeros(len(costs), dtype=np.int64)
    bits = min(_BITS, (60 - num_rows.bit_length()) // 2)
    return np.rint(np.ldexp(costs, bits - math.frexp(largest)[1])).astype(np.int64)


def whole_sums(groups: IntArray, values: IntArray, number: int = 0) -> IntArray:
    """The sum of each group; exact below 2 ** 53."""
    sums: IntArray = np.bincount(groups, values, number).astype(np.int64)
    return sums


def _apart(first: IntArray, second: IntArray, num_rows: int) -> IntArray:
    """Which of the pairs of rows, best first, are the first ones of both their rows."""
    number = np.arange(len(first))
    earliest = np.full(num_rows, len(first))
    np.minimum.at(earliest, first, number)
    np.minimum.at(earliest, second, number)
    return np.flatnonzero((earliest[first] == number) & (earliest[second] == number))


def _padded(values: IntArray) -> IntArray:
    return np.concatenate([values, np.zeros_like(values[:1])])


@cache
def _splits(num_items: int) -> npt.NDArray[np.float64]:
    """All ways to take some of the items: [items, 2 ** items], 1 for taken."""
    ways = np.arange(1 << num_items)
    taken = (ways >> np.arange(num_items)[:, None]) & 1
    return taken.astype(np.float64)
