"""Column generation: the patterns that a cheapest fractional plan uses.

The linear program has one kind of demand per class of sizes. Its prices say what a place costs; a
knapsack at these prices finds the rows that are worth more than a row. They join the program, until
there are none: then no pattern at all could lower the value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.pattern_fill import fill
from quire.plan.pattern_prices import Knapsack
from quire.plan.pattern_problem import Problem
from quire.plan.pattern_program import Floats, Relaxed, solve_relaxed

_TOLERANCE = 1e-7
_GAP = 1e-5
"""The search ends when value and bound are as near as this, relative to the value."""
_ROUNDING = 1e-6
"""Values this close above a whole number count as that number."""
_KEPT_COLUMNS = 4
"""Columns kept from round to round, per class; with many more the program gets slow."""


class Work:
    """A budget of elementary steps, counted and not timed: the same on every machine."""

    def __init__(self, budget: int) -> None:
        self.left = budget

    def spend(self, steps: int) -> None:
        """Take steps from the budget, which may end below zero."""
        self.left -= steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """Where a search ended."""

    numbers: IntArray
    """Patterns: ``numbers[j, i]`` fragments of size i."""
    relaxed: Relaxed
    bound: float
    """No fractional plan of the problem has fewer rows (up to rounding errors)."""
    prices: Floats
    """The prices that prove the bound."""

    @property
    def whole(self) -> IntArray:
        """The whole part of every column's rows."""
        return np.floor(self.relaxed.rows + _ROUNDING).astype(np.int64)

    @property
    def nearest(self) -> IntArray:
        """The nearest whole number to every column's rows."""
        return np.floor(self.relaxed.rows + 0.5).astype(np.int64)


def first_patterns(problem: Problem) -> IntArray:
    """Patterns to start from, that can serve all demands: best-fit's, and the row of sand alone."""
    cap = problem.cap or int(problem.demands.sum())
    patterns = fill(problem.sizes.tolist(), problem.demands.tolist(), problem.capacity, cap)
    numbers = np.zeros((len(patterns.contents) + 1, len(problem.sizes)), dtype=np.int64)
    for line, pattern in enumerate(patterns.contents):
        for size, number in pattern:
            numbers[line, size] = number
    return numbers


def search_patterns(
    problem: Problem, numbers: IntArray, work: Work, max_rounds: int = 1000
) -> Found | None:
    """Patterns for the problem, from some that can serve all of it; None if work runs out first.

    The search ends when no whole row can be saved any more: the last fractions of a row take most
    of the rounds, and the most expensive ones.
    """
    found, needs = None, problem.needs()
    prices = np.append(problem.sizes / problem.capacity, 1.0)  # every place costs the same
    bound = float(needs @ prices)
    for _ in range(max_rounds):
        columns = problem.columns(numbers)
        relaxed = solve_relaxed(columns, needs, len(problem.sizes), work.left // len(needs))
        if relaxed is None:
            break
        knapsack = problem.knapsack(relaxed.prices)
        work.spend(relaxed.pivots * len(needs) + problem.knapsack_steps())
        proven = float(needs @ relaxed.prices) / max(1.0, knapsack.best)
        if proven > bound:
            bound, prices = proven, relaxed.prices
        found = Found(numbers=numbers, relaxed=relaxed, bound=bound, prices=prices)
        if _is_settled(relaxed.value, bound) or work.left <= 0:
            break
        better = _worth_more_than_a_row(problem, knapsack, relaxed)
        if not len(better):
            break
        numbers = np.concatenate([_cheapest(numbers, columns, relaxed), better])
    return found


def _is_settled(value: float, bound: float) -> bool:
    """Whether more rounds would save no whole row.

    Half of what lies between the bound and the next whole number is left as room for the rounding.
    """
    fewest = math.ceil(bound - _ROUNDING)
    return value - bound <= _GAP * value or value <= (fewest + bound) / 2 + _ROUNDING


def whole_rows(problem: Problem, found: Found, work: Work) -> tuple[IntArray, IntArray]:
    """Patterns, and whole numbers of rows of each, that together serve nearly all demands.

    Whole parts are taken, the program is solved again for what they leave, and where there is no
    whole part the largest fractions are rounded up. What is left when work runs out, is left.
    """
    taken_numbers, taken_rows = [], []
    while True:
        rows = found.whole if found.whole.any() else _largest(found.relaxed.rows)
        used = rows > 0
        taken_numbers.append(found.numbers[used])
        taken_rows.append(rows[used])
        problem = _without(problem, found.numbers[used], rows[used])
        if work.left <= 0 or not problem.demands.any():
            break
        following = search_patterns(problem, found.numbers, work, max_rounds=2)
        if following is None:
            break
        found = following
    return np.concatenate(taken_numbers), np.concatenate(taken_rows)


def _worth_more_than_a_row(problem: Problem, knapsack: Knapsack, relaxed: Relaxed) -> IntArray:
    numbers = knapsack.rows_with_each_size()
    worth = problem.columns(numbers) @ relaxed.prices
    return np.unique(numbers[worth > 1 + _TOLERANCE], axis=0)


def _cheapest(numbers: IntArray, columns: Floats, relaxed: Relaxed) -> IntArray:
    """The columns in use, and those nearest to being of use."""
    most = _KEPT_COLUMNS * numbers.shape[1]
    if len(numbers) <= most:
        return numbers
    cost = np.where(relaxed.rows > 0, -1.0, 1 - columns @ relaxed.prices)
    return numbers[np.sort(np.argsort(cost, kind="stable")[:most])]


def _largest(rows: Floats) -> IntArray:
    """One row of each column with a large fraction, at least of the largest."""
    return (rows >= min(0.75, float(rows.max()))).astype(np.int64)


def _without(problem: Problem, numbers: IntArray, rows: IntArray) -> Problem:
    """What is left of a problem; places that a size does not need go to the next smaller one."""
    served = rows @ numbers
    left = problem.demands.tolist()
    surplus = 0
    for index, places in enumerate(served.tolist()):
        places_here = places + surplus
        surplus = max(0, places_here - left[index])
        left[index] = max(0, left[index] - places_here)
    space = float(rows @ (problem.capacity - numbers @ problem.sizes))
    return replace(problem, demands=np.array(left), sand=max(0.0, problem.sand - space))
