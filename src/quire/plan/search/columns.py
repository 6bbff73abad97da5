"""Column generation: the patterns that a cheapest fractional plan uses, and whole rows of them.

The linear program has one demand per class of sizes. Its prices tell what a class costs in rows; a
knapsack at these prices finds the patterns that are worth more than a row. They join the program
until there are none: then no pattern at all could lower the value. HiGHS solves the program; this
is the only module that needs scipy.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quire.errors import MissingDependency, install_command, missing_dependency
from quire.plan.lengths import FloatArray, IntArray
from quire.plan.search.knapsack import Knapsack

BUDGET = 100_000_000
"""Steps of work for one plan (see `Work`): about ten seconds of one processor."""
_TOLERANCE = 1e-7
_GAP = 1e-5
"""The search ends when value and bound are this close, relative to the value."""
_ROUNDING = 1e-6
"""Values this close above a whole number count as that number."""

_log = logging.getLogger("quire.plan")


class Work:
    """A budget of elementary steps, counted and not timed: the same on every machine."""

    def __init__(self, budget: int) -> None:
        self.left = budget

    def spend(self, steps: int) -> None:
        """Take steps from the budget, which may end below zero."""
        self.left -= steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Classes of documents to pack, as the linear program sees them."""

    sizes: IntArray
    """``sizes[i, d]`` of class i in dimension d; with one budget they decrease."""
    budgets: IntArray
    """Of a row, in each dimension."""
    demands: IntArray
    """Documents in each class."""
    cap: int | None = None
    """The most documents in a row, with one budget; None where the sizes are limit enough."""
    sand: float = 0.0
    """With one budget: the total size of documents so small that they fill any space."""

    @property
    def has_one_budget(self) -> bool:
        """Whether rows are limited in one dimension."""
        return len(self.budgets) == 1

    @property
    def smoothing(self) -> tuple[float, ...]:
        """How near to the best prices so far the knapsack is solved, tried in turn.

        With several budgets the prices of the program swing wildly (Wentges' smoothing): chart
        questions at 56 tiles took 7 rounds, and had not converged after 120 without it. With one
        budget, transfers between classes keep them steady.
        """
        return (0.0,) if self.has_one_budget else (0.8, 0.4, 0.1, 0.0)

    @property
    def needs(self) -> FloatArray:
        """Demands as the program takes them; with one budget sand comes last, in rows."""
        needs = self.demands.astype(float)
        return np.append(needs, self.sand / self.budgets[0]) if self.has_one_budget else needs

    def columns(self, counts: IntArray) -> FloatArray:
        """Patterns as the program takes them: with the share of a row that is left for sand."""
        if not self.has_one_budget:
            return counts.astype(float)
        share_left = 1 - counts @ self.sizes[:, 0] / self.budgets[0]
        return np.column_stack([counts.astype(float), share_left])

    def knapsack(self, prices: FloatArray) -> Knapsack:
        """The best rows at these prices; with one budget the last price is of a row of sand."""
        if not self.has_one_budget:
            return Knapsack.solve(self.sizes, prices, self.budgets)
        space_price = float(prices[-1]) / int(self.budgets[0])
        return Knapsack.solve(self.sizes, prices[:-1], self.budgets, self.cap, space_price)

    @property
    def knapsack_steps(self) -> int:
        """About what one knapsack costs, in the unit of `Work`."""
        overhead = 1999 if self.has_one_budget else 4000
        cells = (self.cap or 1) * (int(np.prod(self.budgets + 1)) + overhead)
        return len(self.demands) * (cells // 8 + 4 * len(self.demands))

    def without(self, counts: IntArray, rows: IntArray) -> Problem:
        """What is left when some patterns are used."""
        served = rows @ counts
        if not self.has_one_budget:
            return replace(self, demands=np.maximum(0, self.demands - served))
        # Room that a class does not need goes to the next smaller one.
        left, surplus = self.demands.tolist(), 0
        for index, room in enumerate(served.tolist()):
            available = room + surplus
            surplus = max(0, available - left[index])
            left[index] = max(0, left[index] - available)
        space = float(rows @ (self.budgets[0] - counts @ self.sizes[:, 0]))
        return replace(self, demands=np.array(left), sand=max(0.0, self.sand - space))


@dataclass(frozen=True, kw_only=True, slots=True)
class Relaxed:
    """The cheapest fractional use of some patterns."""

    value: float
    """Rows, as a fraction."""
    rows: FloatArray
    """Rows of each pattern."""
    prices: FloatArray
    """What one more document of each class would cost, in rows."""
    pivots: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The result of a search."""

    counts: IntArray
    """Patterns: ``counts[j, i]`` documents of class i."""
    relaxed: Relaxed
    bound: float
    """No fractional plan of the problem has fewer rows (up to rounding errors)."""
    prices: FloatArray
    """The prices that prove the bound: no row is worth more than 1 (up to rounding errors)."""

    @property
    def whole(self) -> IntArray:
        """The whole part of the rows of every pattern."""
        return np.floor(self.relaxed.rows + _ROUNDING).astype(np.int64)

    @property
    def nearest(self) -> IntArray:
        """The nearest whole number to the rows of every pattern."""
        return np.floor(self.relaxed.rows + 0.5).astype(np.int64)

    @property
    def whole_or_largest(self) -> IntArray:
        """The whole parts; if there are none, one row of each pattern with a large fraction."""
        rows = self.relaxed.rows
        return self.whole if self.whole.any() else (rows >= min(0.75, rows.max())).astype(np.int64)


def search_patterns(
    problem: Problem,
    counts: IntArray,
    work: Work,
    prices: FloatArray | None = None,
    max_rounds: int | None = None,
) -> Found | None:
    """Patterns for the problem, starting from some that can serve it; None if work runs out.

    The search ends when no whole row can be saved any more: the last fractions of a row take the
    most rounds, and the costliest. Good ``prices`` to start from steady it.
    """
    found, needs = None, problem.needs
    prices, bound = _first_prices(problem, prices)
    for _ in range(max_rounds or (1000 if problem.has_one_budget else 60)):
        if work.left <= 0:
            break
        columns = problem.columns(counts)
        chain = len(counts[0]) if problem.has_one_budget else 0
        relaxed = solve_relaxed(columns, needs, chain, work.left // len(needs))
        if relaxed is None:
            break
        work.spend(relaxed.pivots * len(needs))
        prices, bound, better = _price(problem, relaxed, prices, bound, work)
        found = Found(counts=counts, relaxed=relaxed, bound=bound, prices=prices)
        if not len(better):
            break
        counts = np.concatenate([_cheapest(problem, counts, columns, relaxed), better])
        if not problem.has_one_budget:
            counts = np.unique(counts, axis=0)
    return found


def _first_prices(problem: Problem, prices: FloatArray | None) -> tuple[FloatArray, float]:
    """Prices at which no row is worth more than 1, and the rows that they prove necessary."""
    if prices is not None:
        prices = prices / max(problem.knapsack(prices).best, _TOLERANCE)
    else:  # each class costs its share of a row, in the scarcest dimension
        shares = problem.sizes / problem.budgets
        prices = shares[:, (problem.demands @ shares).argmax()]
        prices = np.append(prices, 1.0) if problem.has_one_budget else prices
    return prices, float(problem.needs @ prices)


def _price(
    problem: Problem, relaxed: Relaxed, prices: FloatArray, bound: float, work: Work
) -> tuple[FloatArray, float, IntArray]:
    """The best prices and bound so far, and patterns that are worth more than a row."""
    none = np.zeros((0, len(problem.demands)), dtype=np.int64)
    steady = prices
    for nearness in problem.smoothing:
        if not problem.has_one_budget and _is_settled(problem, relaxed.value, bound):
            break
        tried = nearness * steady + (1 - nearness) * relaxed.prices
        knapsack = problem.knapsack(tried)
        work.spend(problem.knapsack_steps)
        proven = float(problem.needs @ tried) / knapsack.best
        if proven > bound:
            prices, bound = tried / knapsack.best, proven
        if problem.has_one_budget and _is_settled(problem, relaxed.value, bound):
            break
        rows = knapsack.best_rows()
        worth = problem.columns(rows) @ relaxed.prices
        better = np.unique(rows[worth > 1 + _TOLERANCE], axis=0)
        if len(better):
            return prices, bound, better
    return prices, bound, none


def _is_settled(problem: Problem, value: float, bound: float) -> bool:
    """Whether the value is as good as the bound or, with one budget, saves as many whole rows.

    Half of the distance from the bound to the next whole number is left as room for rounding. With
    several budgets the rounding needs the last patterns too: without them chart questions at 56
    tiles take 1,566 rows instead of 1,563.
    """
    if value - bound <= _GAP * value:
        return True
    fewest = math.ceil(bound - _ROUNDING)
    return problem.has_one_budget and value <= (fewest + bound) / 2 + _ROUNDING


def _cheapest(
    problem: Problem, counts: IntArray, columns: FloatArray, relaxed: Relaxed
) -> IntArray:
    """The patterns in use, and those nearest to being of use; too many make the program slow."""
    most = (4 if problem.has_one_budget else 8) * len(problem.demands)
    if len(counts) <= most:
        return counts
    cost = np.where(relaxed.rows > 0, -1.0, 1 - columns @ relaxed.prices)
    return counts[np.sort(np.argsort(cost, kind="stable")[:most])]


def whole_rows(problem: Problem, found: Found, work: Work) -> tuple[IntArray, IntArray]:
    """Patterns, and whole numbers of rows of each, that together serve nearly all demands.

    Whole parts are taken and the program is solved again for what they leave; where there is no
    whole part, the largest fractions are rounded up. It stops when work runs out.
    """
    taken_counts, taken_rows = [], []
    while True:
        rows = found.whole_or_largest
        used = rows > 0
        taken_counts.append(found.counts[used])
        taken_rows.append(rows[used])
        problem = problem.without(found.counts[used], rows[used])
        if work.left <= 0 or not problem.demands.any():
            break
        prices = None if problem.has_one_budget else found.prices
        following = search_patterns(problem, found.counts, work, prices, max_rounds=2)
        if following is None:
            break
        found = following
    return np.concatenate(taken_counts), np.concatenate(taken_rows)


def require_solver(purpose: str = "strategy='tight'") -> None:
    """Raise an error with the remedy if scipy is not installed."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise missing_dependency("scipy", purpose, "solver") from error


def has_solver(purpose: str, instead: str) -> bool:
    """Whether scipy is installed; if not, a line in the log tells what is done instead."""
    try:
        require_solver()
    except MissingDependency:
        install = install_command("solver")
        _log.warning(
            "%s without scipy gives only %s; for the pattern program: %s", purpose, instead, install
        )
        return False
    return True


def solve_relaxed(
    columns: FloatArray, demands: FloatArray, chain: int, max_pivots: int
) -> Relaxed | None:
    """The least total of columns that covers the demands, or None beyond ``max_pivots``.

    Each line ``columns[j]`` is a pattern. The first ``chain`` classes are decreasing sizes: room
    for one may also be used by the next smaller one. These transfers cost and lose nothing, and
    they keep prices monotone, which makes the search converge in a few rounds.
    """
    require_solver()
    from scipy.optimize import linprog
    from scipy.sparse import csc_array, hstack

    transfers = _transfers(len(demands), chain)
    matrix: Any = hstack([csc_array(-columns.T), csc_array(-transfers)], format="csc")
    cost = np.concatenate([np.ones(len(columns)), np.zeros(transfers.shape[1])])
    # The dual simplex runs on one thread and counts its pivots, so a limit on them is repeatable.
    result = linprog(
        cost,
        A_ub=matrix,
        b_ub=-demands,
        method="highs-ds",
        options={"presolve": False, "maxiter": max_pivots},
    )
    if result.x is None or result.fun is None or result.status != 0:
        return None
    return Relaxed(
        value=float(result.fun),
        rows=result.x[: len(columns)],
        prices=np.maximum(0.0, -result.ineqlin.marginals),
        pivots=int(result.nit),
    )


def _transfers(num_classes: int, chain: int) -> FloatArray:
    transfers = np.zeros((num_classes, max(0, chain - 1)))
    larger = np.arange(transfers.shape[1])
    transfers[larger, larger] = -1
    transfers[larger + 1, larger] = 1
    return transfers
