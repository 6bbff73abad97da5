"""The pattern program on ever finer classes: the prices of one level steady the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.pattern_search import Work
from quire.plan.vector_classes import Classes, Kinds, group_kinds
from quire.plan.vector_search import Found, Problem, first_patterns, search_patterns
from quire.plan.vector_sizes import Floats, Vectors

BUDGET = 100_000_000
"""Steps of work for one search, see `pattern_search.Work`."""
_LEVELS = (24, 100, 400)
"""Most classes on each level."""
_CELLS = 1 << 17
"""Cells in the knapsack's table while searching."""
_MOST_IN_A_ROW = 64
"""Documents under this part of a row in every dimension are sand: the program leaves them out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """What the search came to on its finest level."""

    classes: Classes
    problem: Problem
    found: Found


def without_sand(vectors: Vectors) -> IntArray:
    """The documents that are large enough for the program to think of."""
    return np.flatnonzero((vectors.sizes * _MOST_IN_A_ROW >= vectors.budgets).any(axis=1))


def search_levels(kinds: Kinds, measure: Literal["largest", "typical"], work: Work) -> Level | None:
    """The finest level that the work sufficed for, each class counting with one of its sizes."""
    level, prices = None, _prices_by_volume(kinds)
    for most_classes in _LEVELS:
        classes = group_kinds(kinds, most_classes, _CELLS)
        if level is not None and len(classes.demands) == len(level.classes.demands):
            break  # no finer than the one before
        problem = Problem(
            vectors=Vectors(sizes=getattr(classes, measure), budgets=classes.budgets),
            demands=classes.demands,
        )
        means = mean_prices(kinds, classes, prices)
        found = search_patterns(problem, first_patterns(problem), means, work)
        if found is None:
            break
        level = Level(classes=classes, problem=problem, found=found)
        prices = found.prices[classes.class_of]
    return level


def mean_prices(kinds: Kinds, classes: Classes, prices: Floats) -> Floats:
    """The mean over each class of prices of kinds."""
    total = np.bincount(classes.class_of, weights=kinds.counts * prices)
    return total / classes.demands


def _prices_by_volume(kinds: Kinds) -> Floats:
    """Shares of a row in the dimension that needs most rows."""
    rows = (kinds.counts[:, None] * kinds.vectors.shares).sum(axis=0)
    prices: Floats = kinds.vectors.shares[:, int(rows.argmax())]
    return prices
