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

from quire.plan.bounds import bound_of_counts
from quire.plan.exact.dealt import dealt_rows
from quire.plan.exact.evenly import even_rows
from quire.plan.exact.problem import Problem, RowKinds
from quire.plan.exact.scarcest import scarcest_first
from quire.plan.exact.shuffled import shuffled_rows
from quire.plan.fragments import Rows
from quire.plan.histogram import Runs, decreasing_rows
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions
from quire.plan.strategies import Strategy
from quire.plan.strategies.best_fit import best_fit_runs

_CLOSE = 10_000
"""One row in this many over the bound is close enough to return best-fit's plan."""
_ENOUGH = 2000
"""One row in this many over the bound is close enough to end the search."""
_ENOUGH_OF_FEW, _FEW_ROWS = 1000, 4
"""In small plans it is one row in this many, but not over so many rows."""
_FEW, _MANY = 1500, 1 << 18
"""Numbers of documents between which rows are dealt first: that costs less than best-fit."""
_FULL = 100
"""Rows can be full if the bound is at most one row in this many over their total size."""


def exact_fit(sizes: IntArray, max_length: int, options: PlanOptions) -> Rows:
    """Rows that documents fill exactly, or by best-fit if those are not fewer."""
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
    num_documents = sum(counts)
    is_small = _FEW <= num_documents <= _MANY
    if is_small and num_documents <= cap * by_total:
        kinds = _dealt(Problem.of(sizes, counts, max_length, cap), by_total)
        if kinds is not None:
            return kinds.runs(), kinds.num_rows
    runs: Runs
    runs, fewest = best_fit_runs(sizes, counts, max_length, cap)
    if fewest <= by_total + by_total // _CLOSE:
        return runs, fewest
    bound = bound_of_counts(sizes, counts, max_length, cap)
    if fewest <= bound + (_tolerated(bound) if is_small else bound // _CLOSE):
        return runs, fewest
    problem = Problem.of(sizes, counts, max_length, cap)
    for kinds in _searches(problem, can_be_full=bound <= by_total + by_total // _FULL):
        if kinds.num_rows < fewest:
            runs, fewest = kinds.runs(), kinds.num_rows
        if fewest <= bound + bound // _ENOUGH:
            break
    return runs, fewest


def _dealt(problem: Problem, by_total: int) -> RowKinds | None:
    """The rows of small plans, if they are close to the total size."""
    over = _tolerated(by_total)
    kinds, left = dealt_rows(problem)
    sizes = [size for size, count in enumerate(left.counts) if count][::-1]
    counts = [left.counts[size] for size in sizes]
    runs, num_rows = best_fit_runs(sizes, counts, problem.space, problem.cap)
    if kinds.num_rows + num_rows <= by_total + over:
        kinds.add_runs(sizes, counts, runs, num_rows)
    elif kinds.num_rows + num_rows <= by_total + 2 * over + 2:
        scarcest_first(left, kinds)
    else:
        return None
    return kinds if kinds.num_rows <= by_total + over else None


def _tolerated(bound: int) -> int:
    """Rows over the bound that are few enough in a small plan."""
    return max(bound // _ENOUGH, min(bound // _ENOUGH_OF_FEW, _FEW_ROWS))


def _searches(problem: Problem, *, can_be_full: bool) -> Iterator[RowKinds]:
    """The rows of each search; the last two are of use only where all rows can be full."""
    yield scarcest_first(problem)
    if can_be_full:
        if (mixed := shuffled_rows(problem)) is not None:
            kinds, left = mixed
            yield scarcest_first(left, kinds)
        kinds, left = even_rows(problem)
        if kinds.num_rows:  # else nothing but the first search again
            yield scarcest_first(left, kinds)


STRATEGY = Strategy(place=exact_fit, needs_order=False, runs=exact_fit_runs)
