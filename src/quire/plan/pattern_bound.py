"""A proven lower bound on the number of rows, from the prices of the pattern program."""

from __future__ import annotations

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.pattern_classes import Classes
from quire.plan.pattern_prices import Knapsack
from quire.plan.pattern_problem import Fragments, exact_dot
from quire.plan.pattern_program import Floats
from quire.plan.pattern_search import Work, first_patterns, search_patterns

_BUDGET = 100_000_000
_CLASSES = 600
_SCALE = 1 << 40
"""Prices times this become integers: a row is worth about as much, well within 64 bits."""
_CELLS = 1 << 28
"""Cells in the table of the one knapsack that is the proof; only rows beyond that are measured in
larger units."""


def pattern_bound(
    sizes: IntArray,
    counts: IntArray,
    capacity: int,
    max_per_row: int | None,
    *,
    budget: int = _BUDGET,
) -> int:
    """No plan for these sizes has fewer rows; sizes are distinct and decreasing.

    Prices are a proof by themselves: if no row is worth more than V, all fragments together need
    their worth / V rows. They are rounded to integers and V is computed from them exactly, with
    every size counted as the smallest of its class, so no rounding error enters the proof.

    >>> pattern_bound(np.array([4]), np.array([10]), 10, None)  # 40 places, two to a row
    5
    """
    if not len(sizes):
        return 0
    fragments = Fragments.of(sizes, counts, capacity, max_per_row)
    if not fragments.num_large:
        return fragments.simple_bound
    classes = fragments.classes(_CLASSES)
    problem = fragments.problem(classes, classes.smallest)
    found = search_patterns(problem, first_patterns(problem), Work(budget))
    if found is None:
        return fragments.simple_bound
    return max(fragments.simple_bound, _proven(fragments, classes, found.prices))


def _proven(fragments: Fragments, classes: Classes, prices: Floats) -> int:
    """The bound that these prices prove, whatever they are; the last is for a row of sand."""
    layers = fragments.program_cap or 1
    unit = -(-fragments.capacity * len(classes.demands) * layers // _CELLS)
    capacity = -(-fragments.capacity // unit)
    worth = np.floor(prices[:-1] * _SCALE).astype(np.int64)
    space_worth = int(prices[-1] * _SCALE / capacity)
    # Sizes rounded down and the row rounded up: whatever fits into a row, fits here.
    knapsack = Knapsack.solve(
        classes.smallest // unit, worth, capacity, fragments.program_cap, space_worth
    )
    total = exact_dot(worth, classes.demands) + space_worth * (classes.sand // unit)
    return -(-total // max(1, int(knapsack.best)))
