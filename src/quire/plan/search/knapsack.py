"""The knapsack: which row is worth most at given prices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.plan.lengths import BoolArray, IntArray

Values: TypeAlias = npt.NDArray[np.float64] | npt.NDArray[np.int64]

_TOLERANCE = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Knapsack:
    """The value of the best row for every space, within one budget or several."""

    sizes: IntArray
    """``sizes[i, d]`` of kind i in dimension d; a kind of positive price is not zero everywhere."""
    prices: Values
    tables: list[Values]
    """``tables[n][w1, w2, ...]``: the best row of at most n items. A single table has no limit."""
    space_price: float

    @classmethod
    def solve(
        cls,
        sizes: IntArray,
        prices: Values,
        budgets: IntArray,
        cap: int | None = None,
        space_price: float = 0,
    ) -> Knapsack:
        """The best values by dynamic programming; integer prices give exact values.

        ``cap`` is the most items in a row. With one budget, each token of free space is worth
        ``space_price``. The cost is the product of the budgets × kinds, × the cap if there is one.

        >>> sizes, prices = np.array([[1, 6], [3, 4]]), np.array([50, 30])
        >>> Knapsack.solve(sizes, prices, np.array([4, 10])).best
        80
        >>> Knapsack.solve(sizes, prices, np.array([3, 10])).best
        50
        """
        empty = np.zeros((budgets + 1).tolist(), dtype=prices.dtype)
        if space_price:
            np.multiply(np.arange(len(empty)), space_price, out=empty, dtype=prices.dtype)
        priced = zip(sizes.tolist(), prices.tolist(), strict=True)
        kinds = [(size, price) for size, price in priced if price > 0]
        tables = [empty]
        for _ in range(cap or 0):
            tables.append(_with_one_more(tables[-1], kinds))
        if cap is None:
            _add_any_number(empty, kinds)
        return cls(sizes=sizes, prices=prices, tables=tables, space_price=space_price)

    @property
    def best(self) -> float:
        """The value of the best row of all."""
        value: float = self.tables[-1].ravel()[-1].item()
        return value

    def best_rows(self) -> IntArray:
        """For every kind, the best row that holds it: one line of counts per kind.

        >>> sizes, budgets = np.array([[1, 6], [3, 4]]), np.array([4, 10])
        >>> Knapsack.solve(sizes, np.array([0.5, 0.3]), budgets).best_rows()
        array([[1, 1],
               [1, 1]])
        """
        counts = np.eye(len(self.sizes), dtype=np.int64)
        space = np.array(self.tables[0].shape) - 1 - self.sizes
        active = np.arange(len(self.sizes))
        for table in self._tables_for_each_choice():
            if not active.size:
                break
            choice, gains = self._next_choice(space[active], table)
            active, choice = active[gains], choice[gains]
            counts[active, choice] += 1
            space[active] -= self.sizes[choice]
        return counts

    def _tables_for_each_choice(self) -> Iterable[Values]:
        if len(self.tables) == 1:
            return repeat(self.tables[0])
        return reversed(self.tables[:-2])  # one item is in the row, the next is being chosen

    def _next_choice(self, space: IntArray, table: Values) -> tuple[IntArray, BoolArray]:
        """The next kind in the best row for each space, and whether it adds value."""
        fits = space[:, :1] >= self.sizes[:, 0]
        for dimension in range(1, self.sizes.shape[1]):
            fits &= space[:, dimension, None] >= self.sizes[:, dimension]
        strides = np.array(table.strides) // table.itemsize
        cells = np.where(fits, (space @ strides)[:, None] - self.sizes @ strides, 0)
        values = np.where(fits, table.ravel()[cells] + self.prices, -1)
        choice = values.argmax(axis=1)
        best = values[np.arange(len(space)), choice]
        return choice, best > space[:, 0] * self.space_price + _TOLERANCE


_Kinds: TypeAlias = list[tuple[list[int], float]]


def _add_any_number(table: Values, kinds: _Kinds) -> None:
    """Let rows take any number of each kind.

    In blocks along the axis where a kind is widest, each block sees what the one before it took;
    few blocks are fast.
    """
    for size, price in kinds:
        axis = max(range(len(size)), key=lambda a: size[a] / table.shape[a])
        width, end = size[axis], table.shape[axis]
        with_one, without = _slices(table, size)
        for start in range(width, end, width):
            stop = min(start + width, end)
            with_one[axis], without[axis] = slice(start, stop), slice(start - width, stop - width)
            block = table[tuple(with_one)]
            np.maximum(block, table[tuple(without)] + price, out=block)


def _with_one_more(table: Values, kinds: _Kinds) -> Values:
    """The table in which rows may hold one more item."""
    best = table.copy()
    for size, price in kinds:
        with_one, without = map(tuple, _slices(table, size))
        np.maximum(best[with_one], table[without] + price, out=best[with_one])
    return best


def _slices(table: Values, size: list[int]) -> tuple[list[slice], list[slice]]:
    """The cells that have room for an item, and the cells that it leads to."""
    with_one = [slice(s, None) for s in size]
    without = [slice(0, length - s) for s, length in zip(size, table.shape, strict=True)]
    return with_one, without
