"""Near-optimal rows, by a linear program over row patterns; never more rows than best-fit.

Best-fit decreasing loses where few documents make up a row: half-empty rows when a cap is set,
rows of three where three do not quite fill. `tight` asks which patterns a cheapest plan would use:

1. sizes are grouped into at most a few hundred classes (one size each where there are that few);
2. column generation solves the linear program over all patterns of classes;
3. fractions become whole rows, the program being solved again for what is left;
4. patterns of classes become rows of real sizes, completed by best-fit;
5. the plan with the fewest rows is kept, best-fit's own among them.

Steps 1 to 4 are tried with a few class counts and margins, until a plan meets the program's bound
or the budget of work is spent. The budget counts simplex pivots and table cells, not seconds, and
HiGHS runs its one-threaded dual simplex, so the outcome depends on the input alone. The default is
about ten seconds on an ordinary machine, whatever the number of documents and the capacity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quire.plan.best_fit import best_fit_runs
from quire.plan.histogram import Histogram, rows_from_runs
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions
from quire.plan.pattern_classes import MOST_IN_A_ROW, Classes, group_sizes
from quire.plan.pattern_fill import fill
from quire.plan.pattern_placing import place
from quire.plan.pattern_search import Found, Problem, Work, search_patterns, whole_rows
from quire.plan.patterns import Patterns
from quire.plan.rows import Rows

BUDGET = 60_000_000
"""Steps of work for one plan, see `Work`."""
_FINEST = 8192
"""Places in a row, as the knapsack sees it; larger rows are measured in larger units."""
_EXACT_CLASSES = 600
"""Up to so many sizes, every size is its own class."""
_ATTEMPTS = ((200, 0.5), (200, 0.25), (200, 1.0), (400, 0.5), (400, 0.25))
"""Numbers of classes, and margins in class widths, tried in turn where there are more sizes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fragments:
    """What is to be packed: distinct sizes in decreasing order, and the row."""

    sizes: IntArray
    counts: IntArray
    capacity: int
    max_per_row: int | None

    @property
    def cap(self) -> int:
        """The most fragments in a row, as a number."""
        return self.max_per_row or int(self.counts.sum())

    @property
    def simple_bound(self) -> int:
        """Rows by total size, or by number."""
        total = sum(s * c for s, c in zip(self.sizes.tolist(), self.counts.tolist(), strict=True))
        return max(-(-total // self.capacity), -(-int(self.counts.sum()) // self.cap))

    @property
    def program_cap(self) -> int | None:
        """The cap, where the program has to know of it."""
        return self.max_per_row if self.cap <= MOST_IN_A_ROW else None

    @property
    def num_large(self) -> int:
        """Sizes that the program takes as such: with a low cap all of them."""
        if self.program_cap is not None:
            return len(self.sizes)
        return int(np.searchsorted(-self.sizes, -(self.capacity // MOST_IN_A_ROW), side="left"))


def tight(sizes: IntArray, capacity: int, options: PlanOptions) -> Rows:
    """Rows by the pattern program, or by best-fit where that needs no more."""
    histogram = Histogram.of(sizes)
    cap = options.max_documents_per_row or len(sizes)
    runs, num_rows = best_fit_runs(histogram.sizes, histogram.counts, capacity, cap)
    patterns = solve_patterns(
        np.array(histogram.sizes, dtype=np.int64),
        np.array(histogram.counts, dtype=np.int64),
        capacity,
        options.max_documents_per_row,
    )
    if patterns.num_rows < num_rows:
        runs, num_rows = patterns.runs(), patterns.num_rows
    return rows_from_runs(histogram.order, runs, num_rows)


def solve_patterns(
    sizes: IntArray,
    counts: IntArray,
    capacity: int,
    max_per_row: int | None,
    *,
    budget: int = BUDGET,
) -> Patterns:
    """Row patterns that hold every fragment once, in as few rows as the budget finds.

    >>> sizes, counts = np.array([6, 5, 4, 3, 2]), np.array([1, 1, 1, 1, 1])
    >>> solve_patterns(sizes, counts, 10, None).num_rows
    2
    """
    fragments = Fragments(sizes=sizes, counts=counts, capacity=capacity, max_per_row=max_per_row)
    best = fill(sizes.tolist(), counts.tolist(), capacity, fragments.cap)
    work = Work(budget)
    for classes, margin in _attempts(fragments):
        if best.num_rows <= fragments.simple_bound or work.left <= 0:
            break
        for patterns in _attempt(fragments, classes, margin, work):
            best = min(best, patterns, key=lambda candidate: candidate.num_rows)
    return best


def _attempts(fragments: Fragments) -> Iterator[tuple[Classes, float]]:
    large = fragments.num_large
    if not large:
        return
    if large <= _EXACT_CLASSES:
        yield group_sizes(fragments.sizes, fragments.counts, large, large), 0.0
        return
    for num_classes, margin in _ATTEMPTS:
        classes = group_sizes(fragments.sizes, fragments.counts, num_classes, large)
        yield classes, margin * classes.width


def _attempt(
    fragments: Fragments, classes: Classes, margin: float, work: Work
) -> Iterator[Patterns]:
    """Plans from one linear program."""
    problem = _problem(fragments, classes, classes.typical, margin)
    found = search_patterns(problem, _first_patterns(problem), work)
    if found is None:
        return
    for numbers, rows in _roundings(problem, found, work):
        for open_places in (0, 1):
            yield place(
                fragments.sizes,
                fragments.counts,
                fragments.capacity,
                fragments.cap,
                classes,
                numbers,
                rows,
                open_places=open_places,
            )


def _roundings(
    problem: Problem, found: Found, work: Work
) -> Iterator[tuple[IntArray, IntArray]]:
    yield found.numbers, np.floor(found.relaxed.rows + 1e-6).astype(np.int64)
    yield found.numbers, np.floor(found.relaxed.rows + 0.5).astype(np.int64)
    yield whole_rows(problem, found, work)


def _problem(
    fragments: Fragments, classes: Classes, sizes: IntArray, margin: float
) -> Problem:
    unit = -(-fragments.capacity // _FINEST)
    capacity = max(1, int((fragments.capacity - margin) // unit))
    in_units = np.clip((sizes + unit // 2) // unit, 1, capacity)
    return Problem(
        sizes=in_units,
        demands=classes.demands,
        capacity=capacity,
        cap=fragments.program_cap,
        sand=classes.sand / unit,
    )


def _first_patterns(problem: Problem) -> IntArray:
    """Best-fit's patterns, and the row of sand alone."""
    cap = problem.cap or int(problem.demands.sum())
    patterns = fill(problem.sizes.tolist(), problem.demands.tolist(), problem.capacity, cap)
    numbers = np.zeros((len(patterns.contents) + 1, len(problem.sizes)), dtype=np.int64)
    for line, pattern in zip(numbers, patterns.contents, strict=False):
        for size, number in pattern:
            line[size] = number
    return numbers
