"""Rows that fit exactly: best-fit's where they are at the bound, else those of the best search.

Best-fit decreasing wastes up to 5 % where two to four documents fill a row: documents just over a
third of a row find no partners once the small ones are used up. `exact_fit` then looks for sizes
that fill rows exactly, in three ways (see `quire.plan.exact`), until one needs no more rows than a
proven bound, and keeps the plan with the fewest rows. Up to a quarter of a million documents are
dealt to rows first: where that comes close to the total size it costs less than best-fit. The cost
of a search depends on the number of distinct sizes: for rows of 4,096 it takes a twentieth of a
second to a second, also for a million documents; with tens of thousands of sizes it takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quire.plan.bounds import bound_of_counts
from quire.plan.exact.dealt import deal
from quire.plan.exact.evenly import even_rows
from quire.plan.exact.problem import Problem, RowKinds, in_units
from quire.plan.exact.scarcest import scarcest_first
from quire.plan.exact.shuffled import shuffled_rows
from quire.plan.fragments import Rows
from quire.plan.histogram import Runs, decreasing_rows
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions
from quire.plan.strategies import Strategy
from quire.plan.strategies.best_fit import best_fit_few, best_fit_runs

_CLOSE = 10_000
"""One row in this many over the bound is close enough to return best-fit's plan."""
_ENOUGH = 2000
"""One row in this many over the bound is close enough to end the search."""
_ENOUGH_OF_FEW, _FEW_ROWS = 600, 8
"""In small plans it is one row in this many, but not over so many rows."""
_ENOUGH_OF_EVENLY = 150
"""The same if `even_rows` is first: the other searches would cost more than they save."""
_FEW, _MANY = 1500, 1 << 18
"""Numbers of documents of small plans. Rows are dealt first: that costs less than best-fit."""
_FEWEST = 16
"""In plans of fewer rows dealing leaves too many documents."""
_MOST_LEFT = 0.1
"""The largest part of the tokens that may be left after dealing."""
_MOST_EVENLY, _FEW_IN_A_ROW = 1 << 15, 4
"""Up to so many documents, and so many in a row, `even_rows` is first: it is the best there, and
takes no longer than the others."""
_FULL = 100
"""Rows can be full if the bound is at most one row in this many over their total size."""


def exact_fit(sizes: IntArray, max_length: int, options: PlanOptions) -> Rows:
    """Rows that documents fill exactly, or by best-fit if those are not fewer."""
    if _FEW <= len(sizes) <= _MANY:
        rows = _dealt(sizes, max_length, options.max_documents_per_row or len(sizes))
        if rows is not None:
            return rows
    return decreasing_rows(sizes, max_length, options.max_documents_per_row, exact_fit_runs)


def exact_fit_runs(
    sizes: list[int], counts: list[int], max_length: int, cap: int
) -> tuple[Runs, int]:
    """Runs over the decreasing order, and the number of rows.

    >>> exact_fit_runs([5, 4, 3], [2, 2, 2], max_length=12, cap=9)[1]  # best-fit needs three rows
    2
    """
    if not sizes:
        return [], 0
    by_total = -(-sum(map(int.__mul__, sizes, counts)) // max_length)
    is_small = _FEW <= sum(counts) <= _MANY
    runs: Runs
    runs, fewest = best_fit_runs(sizes, counts, max_length, cap)
    if fewest <= by_total + by_total // _CLOSE:
        return runs, fewest
    bound = bound_of_counts(sizes, counts, max_length, cap)
    if fewest <= bound + (_tolerated(bound) if is_small else bound // _CLOSE):
        return runs, fewest
    problem = Problem.of(sizes, counts, max_length, cap)
    evenly = _FEW <= problem.num_documents <= min(_MOST_EVENLY, _FEW_IN_A_ROW * by_total)
    enough = bound // (_ENOUGH_OF_EVENLY if evenly else _ENOUGH)
    can_be_full = bound <= by_total + by_total // _FULL
    for kinds in _searches(problem, can_be_full=can_be_full, evenly_first=evenly):
        if kinds.num_rows < fewest:
            runs, fewest = kinds.runs(), kinds.num_rows
        if fewest <= bound + enough:
            break
    return runs, fewest


def _dealt(sizes: IntArray, max_length: int, cap: int) -> Rows | None:
    """The rows of small plans, if they are close to the total size."""
    total = int(sizes.sum(dtype=np.int64))
    by_total = -(-total // max_length)
    if cap < 3 or len(sizes) > cap * by_total or by_total < _FEWEST:
        return None
    units, space = in_units(sizes, max_length, total / len(sizes))
    rows, left = deal(np.bincount(units, minlength=space + 1), space, cap)
    if int(left @ np.arange(space + 1)) > _MOST_LEFT * by_total * space:
        return None
    over = _tolerated(by_total)
    rest = np.arange(space, -1, -1).repeat(left[::-1]).tolist()
    last = [[rest[index] for index in row] for row in best_fit_few(rest, space, cap)]
    if by_total + over < rows.num_rows + len(last) <= by_total + 2 * over + 2:
        last = scarcest_first(Problem(counts=left.tolist(), space=space, cap=cap)).rows()
    rows.add(last)
    return rows.of(units) if rows.num_rows <= by_total + over else None


def _tolerated(bound: int) -> int:
    """Rows over the bound that are few enough in a small plan."""
    return max(bound // _ENOUGH, min(bound // _ENOUGH_OF_FEW, _FEW_ROWS))


def _searches(problem: Problem, *, can_be_full: bool, evenly_first: bool) -> Iterator[RowKinds]:
    """The rows of each search; all but one are of use only where all rows can be full."""
    if not can_be_full:
        yield scarcest_first(problem)
        return
    searches = [_scarcest, shuffled_rows, even_rows]
    for search in searches[::-1] if evenly_first else searches:
        found = search(problem)
        if found is not None and (found[0].num_rows or search is _scarcest):
            kinds, left = found
            yield scarcest_first(left, kinds)


def _scarcest(problem: Problem) -> tuple[RowKinds, Problem]:
    """No rows yet: `scarcest_first` makes those of the documents left."""
    return RowKinds(), problem


STRATEGY = Strategy(place=exact_fit, needs_order=False, runs=exact_fit_runs)
