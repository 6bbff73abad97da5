"""The knapsack over several budgets: which row is worth most at given prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.pattern_prices import Values

_TOLERANCE = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorKnapsack:
    """The value of the best row, for every space in every dimension."""

    sizes: IntArray
    """One line per kind; none is zero in every dimension."""
    prices: Values
    table: Values
    """``table[w1, w2, …]``: the best row in these spaces."""

    @classmethod
    def solve(cls, sizes: IntArray, prices: Values, budgets: IntArray) -> VectorKnapsack:
        """Best values by dynamic programming; integer prices give exact values.

        The cost is the product of the budgets × kinds.

        >>> sizes, budgets = np.array([[1, 6], [3, 4]]), np.array([4, 10])
        >>> VectorKnapsack.solve(sizes, np.array([50, 30]), budgets).best
        80
        >>> VectorKnapsack.solve(sizes, np.array([50, 30]), np.array([3, 10])).best
        50
        """
        table = np.zeros((budgets + 1).tolist(), dtype=prices.dtype)
        for size, price in zip(sizes.tolist(), prices.tolist(), strict=True):
            if price > 0:
                _add_kind(table, size, price)
        return cls(sizes=sizes, prices=prices, table=table)

    @property
    def best(self) -> float:
        """The value of the best row of all."""
        value: float = self.table[(-1,) * self.table.ndim].item()
        return value

    def rows_with_each_kind(self) -> IntArray:
        """For every kind, the best row that holds it: one line of numbers per kind.

        >>> sizes, budgets = np.array([[1, 6], [3, 4]]), np.array([4, 10])
        >>> VectorKnapsack.solve(sizes, np.array([0.5, 0.3]), budgets).rows_with_each_kind()
        array([[1, 1],
               [1, 1]])
        """
        numbers = np.eye(len(self.sizes), dtype=np.int64)
        space = np.array(self.table.shape) - 1 - self.sizes
        active = np.arange(len(self.sizes))
        while active.size:
            choice, gains = self._next_choice(space[active])
            active, choice = active[gains], choice[gains]
            numbers[active, choice] += 1
            space[active] -= self.sizes[choice]
        return numbers

    def _next_choice(self, space: IntArray) -> tuple[IntArray, IntArray]:
        """The next kind of the best row for each space, and where that adds value."""
        strides = np.array(self.table.strides) // self.table.itemsize
        fits = (space[:, None, :] >= self.sizes[None, :, :]).all(axis=2)
        cells = np.where(fits, (space @ strides)[:, None] - self.sizes @ strides, 0)
        values = np.where(fits, self.table.ravel()[cells] + self.prices, -1)
        choice = values.argmax(axis=1)
        gains = np.flatnonzero(values[np.arange(len(space)), choice] > _TOLERANCE)
        return choice, gains


def _add_kind(table: Values, size: list[int], price: float) -> None:
    """Let rows take any number of one kind.

    In blocks along the axis where the kind is widest, each block sees what the one before it has
    taken; few blocks are fast.
    """
    axis = max(range(len(size)), key=lambda a: size[a] / table.shape[a])
    width, end = size[axis], table.shape[axis]
    with_one = [slice(s, None) for s in size]
    without = [slice(0, length - s) for s, length in zip(size, table.shape, strict=True)]
    for start in range(width, end, width):
        stop = min(start + width, end)
        with_one[axis], without[axis] = slice(start, stop), slice(start - width, stop - width)
        block = table[tuple(with_one)]
        np.maximum(block, table[tuple(without)] + price, out=block)
