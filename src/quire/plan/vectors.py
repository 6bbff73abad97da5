"""Rows within several budgets at once: tokens, tiles, images and documents per pack.

1. Dimensions that never bind are left out; one that is left alone is packed by `tight`.
2. Best-fit in three ways (decreasing, as they came, by likeness), until one reaches the bound.
3. A few rows at a time are packed anew.
4. ``effort="full"``: the pattern program says which kinds of rows a cheapest plan uses; they are
   filled, and best-fit completes them.

"fast" costs documents × open rows: a few milliseconds for a buffer of some hundred. "full" adds a
budget of counted work, some ten seconds of one processor at most, or as much less as ``work`` is
smaller. The clock has no say in either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np

from quire.errors import unknown_name
from quire.options import require_integer
from quire.plan.fragments import Rows
from quire.plan.lengths import IntArray, as_lengths
from quire.plan.options import PlanOptions
from quire.plan.pattern_search import Work
from quire.plan.strategies.best_fit import best_fit
from quire.plan.strategies.tight import tight
from quire.plan.vector_fit import fit_vectors
from quire.plan.vector_improve import improve
from quire.plan.vector_levels import BUDGET
from quire.plan.vector_placing import pattern_rows
from quire.plan.vector_single import (
    OneDimension,
    one_dimension,
    simple_bound,
    solver_is_there,
)
from quire.plan.vector_sizes import Vectors, VectorSizes, essential, read_vectors

EFFORTS = ("fast", "full")
_FEW_TRIES, _TRIES = 16, 512
"""How often rows are packed anew: with effort "fast", and with all the work of "full"."""


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

    Rows are numbered by their first document. A document may have size 0 in some dimensions, not
    in all. Without scipy, "full" is "fast" with more tries, and the log says so. ``work`` is what
    the pattern program of "full" may cost; many small plans share what one large one would have.

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
    return _numbered_by_first_document(row_of)


def pack(vectors: Vectors, effort: str, seed: int, work: int = BUDGET) -> IntArray:
    """The row of every document, from dimensions that matter and documents that take up some."""
    bound = simple_bound(vectors)
    best, _ = min(_plans(vectors, bound, effort, work), key=lambda plan: plan[1])
    return improve(vectors, best, bound, _num_tries(effort, work), seed)


def _num_tries(effort: str, work: int) -> int:
    share = min(work, BUDGET) if effort == "full" else 0
    return _FEW_TRIES + (_TRIES - _FEW_TRIES) * share // BUDGET


def _plans(vectors: Vectors, bound: int, effort: str, work: int) -> Iterator[tuple[IntArray, int]]:
    """Plans, each with its number of rows, until one needs no more than the bound."""
    for plan in _all_plans(vectors, effort, work):
        yield plan
        if plan[1] <= bound:
            return


def _all_plans(vectors: Vectors, effort: str, work: int) -> Iterator[tuple[IntArray, int]]:
    single = one_dimension(vectors)
    if single is not None:
        yield _single_plan(single, best_fit)
    else:
        yield from _fits(vectors)
    if effort == "full" and solver_is_there("pack_vectors(effort='full')", "best-fit"):
        if single is None:
            yield pattern_rows(vectors, Work(work))
        else:
            yield _single_plan(single, partial(tight, budget=work))


def _fits(vectors: Vectors) -> Iterator[tuple[IntArray, int]]:
    weighted = (vectors.shares * vectors.weights).sum(axis=1)
    decreasing = np.argsort(-weighted, kind="stable")
    yield fit_vectors(vectors, decreasing)
    yield fit_vectors(vectors, np.arange(len(vectors)))
    yield fit_vectors(vectors, decreasing, "most_alike")


def _single_plan(
    single: OneDimension, strategy: Callable[[IntArray, int, PlanOptions], Rows]
) -> tuple[IntArray, int]:
    options = PlanOptions(max_length=single.capacity, max_documents_per_row=single.cap)
    rows = strategy(as_lengths(single.sizes), single.capacity, options)
    row_of = np.empty(len(single.sizes), dtype=np.int64)
    row_of[rows.fragments] = np.repeat(np.arange(len(rows.counts)), rows.counts)
    return row_of, len(rows.counts)


def _numbered_by_first_document(row_of: IntArray) -> IntArray:
    _, first, dense = np.unique(row_of, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    numbered: IntArray = rank[dense.reshape(-1)]
    return numbered
