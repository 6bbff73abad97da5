"""Rows after the patterns of the linear program, completed by best-fit."""

from __future__ import annotations

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.pattern_search import Work
from quire.plan.vector_classes import Kinds
from quire.plan.vector_fit import fit_vectors
from quire.plan.vector_levels import search_levels, without_sand
from quire.plan.vector_search import whole_rows
from quire.plan.vector_sizes import Vectors


def pattern_rows(vectors: Vectors, work: Work) -> tuple[IntArray, int]:
    """The row of every document, and the number of rows."""
    large = without_sand(vectors)
    row_of = np.full(len(vectors), -1, dtype=np.int64)
    if len(large):
        row_of[large] = _serve(vectors.only(large), work)
    return _complete(vectors, row_of)


def _serve(vectors: Vectors, work: Work) -> IntArray:
    """Documents in the places of patterns; -1 for those that found none.

    Classes count with their largest sizes, so whatever stands in a pattern's place fits.
    """
    kinds = Kinds.of(vectors)
    row_of = np.full(len(vectors), -1, dtype=np.int64)
    level = search_levels(kinds, "largest", work)
    if level is None:
        return row_of
    numbers, rows = whole_rows(level.problem, level.found, work)
    class_of = level.classes.class_of[kinds.kind_of]
    for number in range(len(level.problem.demands)):
        documents = np.flatnonzero(class_of == number)
        places = np.repeat(np.arange(rows.sum()), np.repeat(numbers[:, number], rows))
        served = min(len(documents), len(places))
        row_of[documents[:served]] = places[:served]
    return row_of


def _complete(vectors: Vectors, row_of: IntArray) -> tuple[IntArray, int]:
    """All documents in rows: those that are in none go to the tightest that holds them."""
    placed = np.flatnonzero(row_of >= 0)
    used, row_of[placed] = np.unique(row_of[placed], return_inverse=True)
    space = np.tile(vectors.budgets, (len(used), 1))
    np.subtract.at(space, row_of[placed], vectors.sizes[placed])
    left = np.flatnonzero(row_of < 0)
    part = vectors.only(left)
    decreasing = np.argsort(-part.shares.sum(axis=1), kind="stable")
    row_of[left], num_rows = fit_vectors(part, decreasing, started=space)
    return row_of, num_rows
