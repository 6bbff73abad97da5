"""The packing problem, and how the linear program sees it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.pattern_classes import Classes, group_sizes
from quire.plan.pattern_prices import Knapsack
from quire.plan.pattern_program import Floats

MOST_IN_A_ROW = 64
"""The program thinks of at most this many fragments in a row; without a cap, sizes under this part
of a row are sand."""
_CELLS = 1 << 22
"""Cells in the knapsack's table; where places × classes are more, rows are measured in larger
units."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fragments:
    """What is to be packed: distinct sizes in decreasing order, how many of each, and the row."""

    sizes: IntArray
    counts: IntArray
    capacity: int
    cap: int
    """The most fragments in a row."""

    @classmethod
    def of(
        cls, sizes: IntArray, counts: IntArray, capacity: int, max_per_row: int | None
    ) -> Fragments:
        """The same problem in the largest unit that all sizes are multiples of.

        >>> Fragments.of(np.array([64, 32]), np.array([1, 1]), 100, None)
        Fragments(sizes=array([2, 1]), counts=array([1, 1]), capacity=3, cap=2)
        """
        unit = int(np.gcd.reduce(sizes))
        cap = max_per_row or int(counts.sum())
        return cls(sizes=sizes // unit, counts=counts, capacity=capacity // unit, cap=cap)

    @property
    def simple_bound(self) -> int:
        """Rows by total size, or by number."""
        total = exact_dot(self.sizes, self.counts)
        return max(-(-total // self.capacity), -(-int(self.counts.sum()) // self.cap))

    @property
    def program_cap(self) -> int | None:
        """The cap, where the program has to know of it."""
        most_that_fit = self.capacity // int(self.sizes[-1])
        return self.cap if self.cap <= min(MOST_IN_A_ROW, most_that_fit - 1) else None

    @property
    def num_large(self) -> int:
        """Sizes that the program takes as such: all of them under a low cap, else all but sand."""
        if self.program_cap is not None:
            return len(self.sizes)
        return int(np.searchsorted(-self.sizes, -(self.capacity // MOST_IN_A_ROW)))

    def classes(self, num_classes: int) -> Classes:
        """The sizes in at most so many classes."""
        return group_sizes(self.sizes, self.counts, num_classes, self.num_large)

    def unit(self, classes: Classes) -> int:
        """The unit in which the program measures."""
        return -(-self.capacity * len(classes.demands) // _CELLS)

    def problem(self, classes: Classes, sizes: IntArray, margin: float = 0) -> Problem:
        """The linear program for classes, where each counts with one size, in a row that is a
        margin shorter."""
        unit = self.unit(classes)
        capacity = max(1, int((self.capacity - margin) // unit))
        return Problem(
            sizes=np.clip((sizes + unit // 2) // unit, 1, capacity),
            demands=classes.demands,
            capacity=capacity,
            cap=self.program_cap,
            sand=classes.sand / unit,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Fragments to be packed, as the linear program sees them."""

    sizes: IntArray
    """Decreasing."""
    demands: IntArray
    capacity: int
    cap: int | None
    """The most fragments in a row; None where the sizes themselves are limit enough."""
    sand: float
    """Total size of fragments so small that they fill any space: they count as a liquid."""

    def columns(self, numbers: IntArray) -> Floats:
        """Patterns as the program takes them: with the share of the row that is left for sand."""
        share_left = 1 - numbers @ self.sizes / self.capacity
        return np.column_stack([numbers.astype(float), share_left])

    def needs(self) -> Floats:
        """Demands as the program takes them, sand last, in rows."""
        return np.append(self.demands.astype(float), self.sand / self.capacity)

    def knapsack(self, prices: Floats) -> Knapsack:
        """Rows at these prices, the last of which is for a row of sand."""
        price_of_space = float(prices[-1]) / self.capacity
        return Knapsack.solve(self.sizes, prices[:-1], self.capacity, self.cap, price_of_space)

    def knapsack_steps(self) -> int:
        """About what one knapsack costs, in the unit of `Work`."""
        layers = self.cap or 1
        return len(self.sizes) * (layers * (self.capacity + 2000) // 8 + 4 * len(self.sizes))


def exact_dot(sizes: IntArray, counts: IntArray) -> int:
    """The dot product in Python integers, which hold any number."""
    return sum(s * c for s, c in zip(sizes.tolist(), counts.tolist(), strict=True))
