"""The knapsack over sizes: which row is worth most at given prices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.plan.lengths import IntArray

Values: TypeAlias = npt.NDArray[np.float64] | npt.NDArray[np.int64]

_TOLERANCE = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Knapsack:
    """The value of the best row, for every space and number of fragments."""

    sizes: IntArray
    prices: Values
    layers: list[Values]
    """``layers[n][w]``: at most n fragments in space w. A single layer has no limit."""
    cap: int | None
    space_price: float

    @classmethod
    def solve(
        cls, sizes: IntArray, prices: Values, capacity: int, cap: int | None, space_price: float
    ) -> Knapsack:
        """Best values by dynamic programming; space left over is worth ``space_price`` a place.

        Integer prices give exact values. The cost is capacity × sizes, × cap where there is one.

        >>> prices = np.array([50, 30])
        >>> Knapsack.solve(np.array([6, 4]), prices, 10, cap=None, space_price=0).best
        80
        """
        empty = np.multiply(np.arange(capacity + 1), space_price, dtype=prices.dtype)
        if cap is None:
            layers = [_unlimited(sizes, prices, empty)]
        else:
            layers = [empty]
            while len(layers) <= cap:
                layers.append(_one_more(sizes, prices, layers[-1]))
        return cls(sizes=sizes, prices=prices, layers=layers, cap=cap, space_price=space_price)

    @property
    def best(self) -> float:
        """The value of the best row of all."""
        value: float = self.layers[-1][-1].item()
        return value

    def rows_with_each_size(self) -> IntArray:
        """For every size, the best row that holds it: one line of numbers per size.

        >>> sizes, prices = np.array([6, 4]), np.array([0.5, 0.4])
        >>> Knapsack.solve(sizes, prices, 10, cap=None, space_price=0).rows_with_each_size()
        array([[1, 1],
               [1, 1]])
        """
        numbers = np.eye(len(self.sizes), dtype=np.int64)
        space = len(self.layers[0]) - 1 - self.sizes
        active = np.flatnonzero(space >= self.sizes[-1])
        for after in self._layers_after_each_choice():
            if not active.size:
                break
            choice, gains = self._next_choice(space[active], after)
            active, choice = active[gains], choice[gains]
            numbers[active, choice] += 1
            space[active] -= self.sizes[choice]
        return numbers

    def _layers_after_each_choice(self) -> Iterator[Values]:
        if self.cap is None:
            return itertools.repeat(self.layers[0])
        return reversed(self.layers[: self.cap - 1])

    def _next_choice(
        self, space: IntArray, after: Values
    ) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """The next size of the best row for each space, and whether it beats leaving off."""
        left = space[:, None] - self.sizes[None, :]
        values = np.where(left >= 0, after[np.maximum(left, 0)] + self.prices, -1)
        choice = values.argmax(axis=1)
        gains = values[np.arange(len(space)), choice] > space * self.space_price + _TOLERANCE
        return choice, gains


def _unlimited(sizes: IntArray, prices: Values, empty: Values) -> Values:
    best = empty.copy()
    for size, price in zip(sizes.tolist(), prices.tolist(), strict=True):
        # In blocks of one size's width, each block sees what the one before it has taken.
        for start in range(size, len(best), size):
            block = best[start : start + size]
            np.maximum(block, best[start - size : start - size + len(block)] + price, out=block)
    return best


def _one_more(sizes: IntArray, prices: Values, before: Values) -> Values:
    best = before.copy()
    for size, price in zip(sizes.tolist(), prices.tolist(), strict=True):
        np.maximum(best[size:], before[: len(best) - size] + price, out=best[size:])
    return best
