"""A proven lower bound on rows within several budgets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quire.plan.histogram import distinct_sizes
from quire.plan.lengths import IntArray
from quire.plan.pattern_bound import pattern_bound
from quire.plan.pattern_problem import exact_dot
from quire.plan.pattern_search import Work
from quire.plan.vector_classes import Kinds, group_kinds
from quire.plan.vector_knapsack import VectorKnapsack
from quire.plan.vector_levels import BUDGET, mean_prices, search_levels, without_sand
from quire.plan.vector_single import one_dimension, simple_bound, solver_is_there
from quire.plan.vector_sizes import Floats, Vectors, VectorSizes, essential, read_vectors
from quire.plan.vectors import pack

_SCALE = 1 << 40
"""Prices times this become integers."""
_CLASSES = 1000
_STEPS = 1 << 30
"""Cells × classes of the one knapsack that is the proof."""


def vector_bound(
    sizes: VectorSizes,
    budgets: Sequence[int] | IntArray,
    *,
    max_items: int | None = None,
    work: int = BUDGET,
) -> int:
    """No plan for these documents has fewer rows.

    The largest of the bounds of each dimension alone (`lower_bound`) and, where scipy is installed,
    of what the prices of the pattern program prove. Without scipy a line in the log says so.

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
    if not solver_is_there("vector_bound", "the bounds of single dimensions"):
        return bound
    single = one_dimension(vectors)
    if single is not None:
        lengths, counts = distinct_sizes(single.sizes)
        return max(bound, pattern_bound(lengths[::-1], counts[::-1], single.capacity, single.cap))
    return max(bound, _pattern_bound(vectors.only(without_sand(vectors)), work))


def _pattern_bound(vectors: Vectors, work: int) -> int:
    if not len(vectors):
        return 0
    kinds = Kinds.of(vectors)
    level = search_levels(kinds, "typical", Work(work))
    return 0 if level is None else proven_rows(kinds, level.found.prices[level.classes.class_of])


def proven_rows(kinds: Kinds, prices: Floats) -> int:
    """The bound that these prices of kinds prove, whatever they are.

    If no row is worth more than V, all documents together need their worth / V rows. Prices are
    rounded to integers and V is computed from them exactly, each document counting as the smallest
    of its class, so no rounding error enters the proof.

    >>> sizes = np.array([[4, 1]] * 10)  # two to a row
    >>> proven_rows(Kinds.of(Vectors(sizes=sizes, budgets=np.array([10, 3]))), np.array([0.5]))
    5
    """
    most_classes = min(_CLASSES, len(kinds.counts))
    classes = group_kinds(kinds, most_classes, _STEPS // most_classes)
    # What is rounded to nothing would fill any row without end, so it counts for nothing.
    counts_for_something = classes.smallest.any(axis=1)
    prices = np.where(counts_for_something, mean_prices(kinds, classes, prices), 0)
    worth = np.floor(np.maximum(prices, 0) * _SCALE).astype(np.int64)
    knapsack = VectorKnapsack.solve(classes.smallest, worth, classes.budgets)
    return -(-exact_dot(worth, classes.demands) // max(1, int(knapsack.best)))
