"""Rows within several budgets at once: tokens, tiles, images and documents per row.

1. Dimensions that never bind are left out; a single remaining one is packed by `tight`.
2. Best-fit in three ways (decreasing, in input order, by likeness), until one reaches the bound.
3. ``effort="full"``: the linear program tells which patterns a cheapest plan uses; rows are made
   after them, and best-fit completes them.
4. A few rows at a time are repacked.

"fast" costs documents × open rows: a few milliseconds for a buffer of some hundred documents.
"full" adds a budget of counted work: about ten seconds of one processor, or less with a smaller
``work``. Neither depends on the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np

from quire.errors import unknown_name
from quire.options import require_integer
from quire.plan.fragments import Rows, numbered_by_first
from quire.plan.lengths import FloatArray, IntArray, as_lengths
from quire.plan.options import PlanOptions
from quire.plan.search.budgets import (
    OneDimension,
    Vectors,
    VectorSizes,
    essential,
    one_dimension,
    read_vectors,
    simple_bound,
)
from quire.plan.search.classes import Classes, Kinds, group_kinds
from quire.plan.search.columns import (
    BUDGET,
    Found,
    Problem,
    Work,
    has_solver,
    search_patterns,
    whole_rows,
)
from quire.plan.search.fit import fit_vectors, improve
from quire.plan.strategies.best_fit import best_fit
from quire.plan.strategies.tight import tight

EFFORTS = ("fast", "full")
_FEW_TRIES, _TRIES = 16, 512
"""How often rows are repacked: with effort "fast", and with all the work of "full"."""
_LEVELS = (24, 100, 400)
"""The program is solved for ever finer classes, at most this many; each starts from prices of the
one before."""
_CELLS = 1 << 17
"""Cells in the knapsack's table while searching."""
_MOST_IN_A_ROW = 64
"""Documents under this part of a row in every dimension are sand: the program leaves them out."""
_SAMPLE = 2000
"""Documents, about, in the heuristic plans from which the search starts."""

_Plan: TypeAlias = tuple[IntArray, int]
"""The row of every document, and the number of rows."""


def pack_vectors(
    sizes: VectorSizes,
    budgets: Sequence[int] | IntArray,
    *,
    max_items: int | None = None,
    seed: int = 0,
    effort: Literal["fast", "full"] = "full",
    work: int = BUDGET,
) -> IntArray:
    """The row of every document, such that no row exceeds any of the budgets.

    Rows are numbered by their first document. A document may have size 0 in some dimensions, but
    not in all. Without scipy, "full" is "fast" with more tries, and a warning is logged. ``work``
    limits the search of "full"; many small plans should share what one large plan would use.

    >>> pack_vectors([[6, 1], [5, 2], [4, 3], [5, 2]], budgets=[10, 4])
    array([0, 1, 0, 1])
    """
    if effort not in EFFORTS:
        raise unknown_name("effort", effort, EFFORTS)
    seed = require_integer("seed", seed, least=0)
    work = require_integer("work", work, least=0)
    everything = read_vectors(sizes, budgets, max_items)
    vectors = essential(everything)
    # Documents that take up nothing that matters fit anywhere.
    row_of = np.zeros(len(everything), dtype=np.int64)
    real = np.flatnonzero(vectors.sizes.any(axis=1))
    if len(real):
        row_of[real] = pack(vectors.only(real), effort, seed, work)
    return numbered_by_first(row_of)


def pack(vectors: Vectors, effort: str, seed: int, work: int = BUDGET) -> IntArray:
    """The row of every document, given only dimensions and documents that matter."""
    bound = simple_bound(vectors)
    best: IntArray = np.zeros(0, dtype=np.int64)
    fewest = len(vectors) + 1
    for row_of, num_rows in _plans(vectors, effort, work):
        if num_rows < fewest:
            best, fewest = row_of, num_rows
        if num_rows <= bound:
            break
    share = min(work, BUDGET) if effort == "full" else 0
    tries = _FEW_TRIES + (_TRIES - _FEW_TRIES) * share // BUDGET
    return improve(vectors, best, bound, tries, seed)


def _plans(vectors: Vectors, effort: str, work: int) -> Iterator[_Plan]:
    single = one_dimension(vectors)
    if single is not None:
        yield _single_plan(single, best_fit)
    else:
        weighted = (vectors.shares * vectors.weights).sum(axis=1)
        decreasing = np.argsort(-weighted, kind="stable")
        yield fit_vectors(vectors, decreasing)
        yield fit_vectors(vectors, np.arange(len(vectors)))
        yield fit_vectors(vectors, decreasing, "most_alike")
    if effort == "full" and has_solver("pack_vectors(effort='full')", "best-fit"):
        if single is None:
            yield pattern_rows(vectors, Work(work))
        else:
            yield _single_plan(single, partial(tight, budget=work))


def _single_plan(
    single: OneDimension, strategy: Callable[[IntArray, int, PlanOptions], Rows]
) -> _Plan:
    options = PlanOptions(max_length=single.max_length, max_documents_per_row=single.cap)
    rows = strategy(as_lengths(single.sizes), single.max_length, options)
    row_of = np.empty(len(single.sizes), dtype=np.int64)
    row_of[rows.fragments] = np.repeat(np.arange(len(rows.counts)), rows.counts)
    return row_of, len(rows.counts)


def pattern_rows(vectors: Vectors, work: Work) -> _Plan:
    """Rows made after the patterns of the linear program, completed by best-fit."""
    large = without_sand(vectors)
    row_of = np.full(len(vectors), -1, dtype=np.int64)
    if len(large):
        row_of[large] = _place(vectors.only(large), work)
    return _complete(vectors, row_of)


def without_sand(vectors: Vectors) -> IntArray:
    """The documents that are large enough for the program to consider."""
    return np.flatnonzero((vectors.sizes * _MOST_IN_A_ROW >= vectors.budgets).any(axis=1))


def _place(vectors: Vectors, work: Work) -> IntArray:
    """The row of every document, by patterns; -1 if it found none.

    Classes count with their largest sizes, so any document of the class fits into a pattern.
    """
    kinds = Kinds.of(vectors)
    row_of = np.full(len(vectors), -1, dtype=np.int64)
    level = search_levels(kinds, "largest", work)
    if level is None:
        return row_of
    counts, rows = whole_rows(level.problem, level.found, work)
    class_of = level.classes.class_of[kinds.kind_of]
    for number in range(len(level.problem.demands)):
        documents = np.flatnonzero(class_of == number)
        room = np.repeat(np.arange(rows.sum()), np.repeat(counts[:, number], rows))
        served = min(len(documents), len(room))
        row_of[documents[:served]] = room[:served]
    return row_of


def _complete(vectors: Vectors, row_of: IntArray) -> _Plan:
    """All documents in rows: those in none go to the tightest that can hold them."""
    placed = np.flatnonzero(row_of >= 0)
    used, row_of[placed] = np.unique(row_of[placed], return_inverse=True)
    space = np.tile(vectors.budgets, (len(used), 1))
    np.subtract.at(space, row_of[placed], vectors.sizes[placed])
    left = np.flatnonzero(row_of < 0)
    part = vectors.only(left)
    decreasing = np.argsort(-part.shares.sum(axis=1), kind="stable")
    row_of[left], num_rows = fit_vectors(part, decreasing, started=space)
    return row_of, num_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """The finest level that a search reached."""

    classes: Classes
    problem: Problem
    found: Found


def search_levels(kinds: Kinds, measure: Literal["largest", "typical"], work: Work) -> Level | None:
    """The finest level that the work was enough for; each class counts with one of its sizes."""
    rows = (kinds.counts[:, None] * kinds.vectors.shares).sum(axis=0)
    prices: FloatArray = kinds.vectors.shares[:, int(rows.argmax())]  # by the scarcest dimension
    level = None
    for most_classes in _LEVELS:
        classes = group_kinds(kinds, most_classes, _CELLS)
        if level is not None and len(classes.demands) == len(level.classes.demands):
            break  # no finer than the one before
        problem = Problem(
            sizes=getattr(classes, measure), budgets=classes.budgets, demands=classes.demands
        )
        mean = classes.mean(prices, kinds.counts)
        found = search_patterns(problem, first_patterns(problem), work, mean)
        if found is None:
            break
        level = Level(classes=classes, problem=problem, found=found)
        prices = found.prices[classes.class_of]
    return level


def first_patterns(problem: Problem) -> IntArray:
    """Patterns to start from: rows of one class each, and those of best-fit on a sample."""
    vectors, demands = Vectors(sizes=problem.sizes, budgets=problem.budgets), problem.demands
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
        counts = np.zeros((num_rows, len(demands)), dtype=np.int64)
        np.add.at(counts, (row_of, documents), 1)
        patterns.append(counts)
    return np.unique(np.concatenate(patterns), axis=0)
