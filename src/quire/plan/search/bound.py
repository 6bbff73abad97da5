"""Proven lower bounds on the number of rows, from the prices of the linear program.

Prices are a proof by themselves: if no row is worth more than V, all documents together need their
worth / V rows. Prices are rounded to integers and V is computed from them exactly, with every size
counted as the smallest of its class, so no rounding error enters the proof.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quire.plan.histogram import distinct_sizes
from quire.plan.lengths import FloatArray, IntArray
from quire.plan.search.budgets import (
    Vectors,
    VectorSizes,
    essential,
    one_dimension,
    read_vectors,
    simple_bound,
)
from quire.plan.search.classes import Classes, Kinds, group_kinds
from quire.plan.search.columns import BUDGET, Work, has_solver, search_patterns
from quire.plan.search.knapsack import Knapsack
from quire.plan.search.one_budget import SizeCounts, exact_dot, first_patterns
from quire.plan.search.several_budgets import pack, search_levels, without_sand

_SCALE = 1 << 40
"""Prices times this become integers: a row is worth about as much, well within 64 bits."""
_CLASSES = 600
"""With one budget: classes in the program and in the proof."""
_CELLS = 1 << 28
"""With one budget: cells × classes × cap of the knapsack that is the proof; only larger rows are
measured in larger units."""
_MOST_CLASSES = 1000
"""With several budgets: classes in the proof."""
_STEPS = 1 << 30
"""With several budgets: cells × classes of the knapsack that is the proof."""


def pattern_bound(
    sizes: IntArray,
    counts: IntArray,
    max_length: int,
    max_per_row: int | None,
    *,
    budget: int = BUDGET,
) -> int:
    """No plan for these sizes has fewer rows; sizes are distinct and decreasing.

    >>> pattern_bound(np.array([4]), np.array([10]), 10, None)  # 40 tokens, two to a row
    5
    """
    if not len(sizes):
        return 0
    given = SizeCounts.of(sizes, counts, max_length, max_per_row)
    if not given.num_large:
        return given.simple_bound
    classes = given.classes(_CLASSES)
    problem = given.problem(classes, classes.smallest)
    found = search_patterns(problem, first_patterns(problem), Work(budget))
    if found is None:
        return given.simple_bound
    return max(given.simple_bound, _proven_by(found.prices, given, classes))


def _proven_by(prices: FloatArray, given: SizeCounts, classes: Classes) -> int:
    """The bound that these prices prove, whatever they are; the last is of a row of sand."""
    layers = given.program_cap or 1
    unit = -(-given.max_length * len(classes.demands) * layers // _CELLS)
    max_length = -(-given.max_length // unit)
    worth = np.floor(prices[:-1] * _SCALE).astype(np.int64)
    space_worth = int(prices[-1] * _SCALE / max_length)
    # Sizes rounded down and the row rounded up: whatever fits into a row fits here.
    knapsack = Knapsack.solve(
        classes.smallest // unit, worth, np.array([max_length]), given.program_cap, space_worth
    )
    total = exact_dot(worth, classes.demands) + space_worth * (given.sand // unit)
    return -(-total // max(1, int(knapsack.best)))


def vector_bound(
    sizes: VectorSizes,
    budgets: Sequence[int] | IntArray,
    *,
    max_items: int | None = None,
    work: int = BUDGET,
) -> int:
    """No plan for these documents, within several budgets, has fewer rows.

    The largest of the bounds of each dimension alone (`lower_bound`) and, if scipy is installed,
    of what the prices of the linear program prove. Without scipy a warning is logged.

    >>> vector_bound([[5, 1], [5, 3], [5, 2]], budgets=[10, 3])  # tiles allow one pair
    2
    """
    everything = read_vectors(sizes, budgets, max_items)
    vectors = essential(everything)
    vectors = vectors.only(np.flatnonzero(vectors.sizes.any(axis=1)))
    if not len(vectors):
        return min(1, len(everything))
    bound = simple_bound(vectors)
    if int(pack(vectors, "fast", seed=0).max()) + 1 <= bound:
        return bound  # a plan proves that no higher bound exists
    if not has_solver("vector_bound", "the bounds of single dimensions"):
        return bound
    single = one_dimension(vectors)
    if single is not None:
        lengths, counts = distinct_sizes(single.sizes)
        return max(bound, pattern_bound(lengths[::-1], counts[::-1], single.max_length, single.cap))
    return max(bound, _bound_of_large(vectors.only(without_sand(vectors)), work))


def _bound_of_large(vectors: Vectors, work: int) -> int:
    if not len(vectors):
        return 0
    kinds = Kinds.of(vectors)
    level = search_levels(kinds, "typical", Work(work))
    return 0 if level is None else proven_rows(kinds, level.found.prices[level.classes.class_of])


def proven_rows(kinds: Kinds, prices: FloatArray) -> int:
    """The bound that these prices of kinds prove, whatever they are.

    >>> sizes = np.array([[4, 1]] * 10)  # two to a row
    >>> proven_rows(Kinds.of(Vectors(sizes=sizes, budgets=np.array([10, 3]))), np.array([0.5]))
    5
    """
    most_classes = min(_MOST_CLASSES, len(kinds.counts))
    classes = group_kinds(kinds, most_classes, _STEPS // most_classes)
    # A size that rounds to nothing would fill any row without end, so it counts for nothing.
    prices = np.where(classes.smallest.any(axis=1), classes.mean(prices, kinds.counts), 0)
    worth = np.floor(np.maximum(prices, 0) * _SCALE).astype(np.int64)
    knapsack = Knapsack.solve(classes.smallest, worth, classes.budgets)
    return -(-exact_dot(worth, classes.demands) // max(1, int(knapsack.best)))
