"""Column generation over several budgets, steadied by prices that are known to be good.

As in `pattern_search`, a linear program sets prices and a knapsack finds the rows that are worth
more than a row. With several budgets its prices swing wildly, so the knapsack is asked at prices
near the best ones so far (Wentges' smoothing): chart questions at 56 tiles took 7 rounds, and had
not ended after 120 without that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.pattern_program import Relaxed, solve_relaxed
from quire.plan.pattern_search import Work
from quire.plan.vector_fit import fit_vectors
from quire.plan.vector_knapsack import VectorKnapsack
from quire.plan.vector_sizes import Floats, Vectors

_NEARNESS = (0.8, 0.4, 0.1, 0.0)
"""How near to the best prices the knapsack is asked; where it finds nothing, the next is tried."""
_TOLERANCE = 1e-7
_GAP = 1e-5
"""The search ends when value and bound are as near as this, relative to the value."""
_KEPT_COLUMNS = 8
"""Columns kept from round to round, per class."""
_SAMPLE = 2000
"""Documents, about, in the heuristic plans from which the search starts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Classes of documents, as the linear program sees them."""

    vectors: Vectors
    """The sizes of each class, and the row."""
    demands: IntArray

    def steps(self) -> int:
        """About what one knapsack costs, in the unit of `Work`."""
        cells = int(np.prod(self.vectors.budgets + 1))
        return len(self.demands) * (cells // 8 + 500 + 4 * len(self.demands))


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Where a search ended."""

    numbers: IntArray
    """Patterns: ``numbers[j, i]`` documents of class i."""
    relaxed: Relaxed
    prices: Floats
    """The prices that prove most: no row is worth more than 1 (up to rounding errors)."""
    bound: float

    @property
    def whole(self) -> IntArray:
        """The whole part of every pattern's rows, or one row of the largest fractions."""
        rows = self.relaxed.rows
        whole = np.floor(rows + 1e-6).astype(np.int64)
        return whole if whole.any() else (rows >= min(0.75, float(rows.max()))).astype(np.int64)


def first_patterns(problem: Problem) -> IntArray:
    """Patterns to start from: rows of one class each, and what best-fit makes of a sample."""
    vectors, demands = problem.vectors, problem.demands
    sizes = np.maximum(vectors.sizes, 1)
    most = np.where(vectors.sizes > 0, vectors.budgets // sizes, vectors.budgets.max())
    patterns = [np.diag(np.maximum(1, most.min(axis=1)))]
    sample = np.minimum(demands, -(-demands * _SAMPLE // max(1, int(demands.sum()))))
    documents = np.repeat(np.arange(len(demands)), sample)
    part = vectors.only(documents)
    decreasing = np.argsort(-part.shares.sum(axis=1), kind="stable")
    mixed = np.random.default_rng(0).permutation(len(documents))
    for order in (decreasing, mixed):
        row_of, num_rows = fit_vectors(part, order)
        numbers = np.zeros((num_rows, len(demands)), dtype=np.int64)
        np.add.at(numbers, (row_of, documents), 1)
        patterns.append(numbers)
    return np.unique(np.concatenate(patterns), axis=0)


def search_patterns(
    problem: Problem, numbers: IntArray, prices: Floats, work: Work, max_rounds: int = 60
) -> Found | None:
    """Patterns for the problem, from some that can serve all of it; None if work runs out first."""
    found, needs = None, problem.demands.astype(float)
    prices, bound = _scaled(problem, prices)
    for _ in range(max_rounds):
        if work.left <= 0:
            break
        relaxed = solve_relaxed(numbers.astype(float), needs, 0, work.left // len(needs))
        if relaxed is None:
            break
        work.spend(relaxed.pivots * len(needs))
        prices, bound, better = _ask(problem, relaxed, prices, bound, work)
        found = Found(numbers=numbers, relaxed=relaxed, prices=prices, bound=bound)
        if not len(better):
            break
        numbers = np.unique(np.concatenate([_cheapest(numbers, relaxed), better]), axis=0)
    return found


def _scaled(problem: Problem, prices: Floats) -> tuple[Floats, float]:
    """Prices at which the best row is worth 1, and the rows that they prove necessary."""
    worth = VectorKnapsack.solve(problem.vectors.sizes, prices, problem.vectors.budgets).best
    scaled = prices / max(worth, _TOLERANCE)
    return scaled, float((problem.demands * scaled).sum())


def _ask(
    problem: Problem, relaxed: Relaxed, prices: Floats, bound: float, work: Work
) -> tuple[Floats, float, IntArray]:
    """The best prices and bound by now, and patterns that are worth more than a row."""
    vectors = problem.vectors
    none = np.zeros((0, len(prices)), dtype=np.int64)
    steady = prices
    for nearness in _NEARNESS:
        if relaxed.value - bound <= _GAP * relaxed.value:
            break
        asked = nearness * steady + (1 - nearness) * relaxed.prices
        knapsack = VectorKnapsack.solve(vectors.sizes, asked, vectors.budgets)
        work.spend(problem.steps())
        proven = float((problem.demands * asked).sum()) / knapsack.best
        if proven > bound:
            prices, bound = asked / knapsack.best, proven
        numbers = knapsack.rows_with_each_kind()
        worth = (numbers * relaxed.prices).sum(axis=1)
        better = np.unique(numbers[worth > 1 + _TOLERANCE], axis=0)
        if len(better):
            return prices, bound, better
    return prices, bound, none


def _cheapest(numbers: IntArray, relaxed: Relaxed) -> IntArray:
    """The patterns in use, and those nearest to being of use."""
    most = _KEPT_COLUMNS * numbers.shape[1]
    if len(numbers) <= most:
        return numbers
    cost = np.where(relaxed.rows > 0, -1.0, 1 - (numbers * relaxed.prices).sum(axis=1))
    return numbers[np.sort(np.argsort(cost, kind="stable")[:most])]


def whole_rows(problem: Problem, found: Found, work: Work) -> tuple[IntArray, IntArray]:
    """Patterns, and whole numbers of rows of each, that together serve nearly all demands.

    Whole parts are taken and the program is solved again for what they leave.
    """
    taken_numbers, taken_rows = [], []
    while True:
        used = found.whole > 0
        numbers, rows = found.numbers[used], found.whole[used]
        taken_numbers.append(numbers)
        taken_rows.append(rows)
        left = np.maximum(0, problem.demands - rows @ numbers)
        problem = replace(problem, demands=left)
        if work.left <= 0 or not left.any():
            break
        following = search_patterns(problem, found.numbers, found.prices, work, max_rounds=2)
        if following is None:
            break
        found = following
    return np.concatenate(taken_numbers), np.concatenate(taken_rows)
