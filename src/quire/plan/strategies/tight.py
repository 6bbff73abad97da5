"""Near-optimal rows, by a linear program over row patterns; never more rows than best-fit.

Best-fit decreasing loses where few documents make up a row: half-empty rows when a cap is set,
rows of three where three do not quite fill. `tight` asks which patterns a cheapest plan would use:

1. sizes are grouped into at most a few hundred classes (one size each where there are that few);
2. column generation solves the linear program over all patterns of classes;
3. fractions become whole rows, the program being solved again for what is left;
4. patterns of classes become rows of real sizes, completed by best-fit;
5. the plan with the fewest rows is kept, best-fit's own among them.

Steps 1 to 4 are tried with a few class counts, until a plan needs no more rows than its tokens or
its number of documents do, or the budget of work is spent. The budget counts pivots, table cells
and sizes, not seconds, and HiGHS runs its one-threaded dual simplex: the clock has no say, and the
same versions of numpy and scipy give the same plan. The default is about ten seconds of one
processor at most, whatever the number of documents and the max_length.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quire.plan.fragments import Rows
from quire.plan.histogram import Histogram, rows_from_runs
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions
from quire.plan.pattern_classes import Classes
from quire.plan.pattern_fill import fill
from quire.plan.pattern_placing import place
from quire.plan.pattern_problem import Fragments, Problem
from quire.plan.pattern_program import require_solver
from quire.plan.pattern_search import Found, Work, first_patterns, search_patterns, whole_rows
from quire.plan.patterns import Patterns
from quire.plan.strategies import Strategy
from quire.plan.strategies.best_fit import best_fit_runs

BUDGET = 100_000_000
"""Steps of work for one plan, see `Work`."""
_EXACT_CLASSES = 600
"""Up to so many sizes, every size is its own class."""
_ATTEMPTS = ((150, 0.6), (300, 0.6), (500, 0.75), (1000, 0.75))
"""Where there are more sizes: numbers of classes tried in turn, and margins in class widths.

A class counts with its mean size, so about half of the rows come out too long. A row that is
shorter by a margin makes most of them fit; the best margin was found by trial on chat-like and
uniform sizes."""

_PLACING_STEPS = 50
"""What best-fit costs for each size, in the unit of `Work`."""


def tight(sizes: IntArray, max_length: int, options: PlanOptions, *, budget: int = BUDGET) -> Rows:
    """Rows by the pattern program, or by best-fit where that needs no more."""
    require_solver()
    histogram = Histogram.of(sizes)
    max_length = min(max_length, int(sizes.sum(dtype=np.int64)))  # as in `best_fit`
    cap = options.max_documents_per_row or len(sizes)
    runs, num_rows = best_fit_runs(histogram.sizes, histogram.counts, max_length, cap)
    patterns = solve_patterns(
        np.array(histogram.sizes, dtype=np.int64),
        np.array(histogram.counts, dtype=np.int64),
        max_length,
        options.max_documents_per_row,
        budget=budget,
    )
    if patterns.num_rows < num_rows:
        runs, num_rows = patterns.runs(), patterns.num_rows
    return rows_from_runs(histogram.order, runs, num_rows)


def solve_patterns(
    sizes: IntArray,
    counts: IntArray,
    max_length: int,
    max_per_row: int | None,
    *,
    budget: int = BUDGET,
) -> Patterns:
    """Row patterns that hold every fragment once, in as few rows as the budget finds.

    Sizes are distinct and decreasing, none larger than the max_length.

    >>> solve_patterns(np.array([3, 2]), np.array([2, 4]), 7, None)  # best-fit needs three rows
    Patterns(contents=(((0, 1), (1, 2)),), rows=(2,))
    """
    if not len(sizes):
        return Patterns.of([])
    fragments = Fragments.of(sizes, counts, max_length, max_per_row)
    best = fill(fragments.sizes.tolist(), counts.tolist(), fragments.capacity, fragments.cap)
    work, cost = Work(budget), 0
    for classes, margin in _attempts(fragments):
        # A finer program costs at least twice the one before; half a search is worth nothing.
        if best.num_rows <= fragments.simple_bound or work.left <= 2 * cost:
            break
        before = work.left
        for patterns in _attempt(fragments, classes, margin, work):
            best = min(best, patterns, key=lambda candidate: candidate.num_rows)
        cost = before - work.left
    return best


def _attempts(fragments: Fragments) -> Iterator[tuple[Classes, float]]:
    num_large = fragments.num_large
    if 0 < num_large <= _EXACT_CLASSES:
        yield fragments.classes(num_large), 0.0
    elif num_large:
        for num_classes, margin in _ATTEMPTS:
            classes = fragments.classes(num_classes)
            yield classes, margin * classes.width


def _attempt(
    fragments: Fragments, classes: Classes, margin: float, work: Work
) -> Iterator[Patterns]:
    """Plans from one linear program."""
    problem = fragments.problem(classes, classes.typical, margin)
    found = search_patterns(problem, first_patterns(problem), work)
    if found is None:
        return
    for numbers, rows in _roundings(problem, found, work):
        for open_places in (1, 0):
            yield place(fragments, classes, numbers, rows, open_places=open_places)
            work.spend(_PLACING_STEPS * len(fragments.sizes))
            if work.left <= 0:
                return


def _roundings(problem: Problem, found: Found, work: Work) -> Iterator[tuple[IntArray, IntArray]]:
    yield found.numbers, found.whole
    yield found.numbers, found.nearest
    value = found.relaxed.value
    if value - found.whole.sum() > 1e-4 * value:
        share = work.left // 8
        careful = Work(share)
        yield whole_rows(problem, found, careful)
        work.spend(share - careful.left)


STRATEGY = Strategy(place=tight, needs_order=False, is_slow=True)
