"""The search for rows limited in one dimension, and in their number of documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.search.classes import Classes, group_sizes
from quire.plan.search.columns import BUDGET, Found, Problem, Work, search_patterns, whole_rows
from quire.plan.search.patterns import Group, Patterns, Stock, fill

_MOST_IN_A_ROW = 64
"""The program considers at most this many documents in a row; without a cap, sizes under this part
of a row are sand."""
_CELLS = 1 << 22
"""Cells in the knapsack's table; if row size × classes is more, rows are measured in larger units.
"""
_EXACT_CLASSES = 600
"""Up to this many sizes, every size is its own class."""
_ATTEMPTS = ((150, 0.6), (300, 0.6), (500, 0.75), (1000, 0.75))
"""With more sizes: numbers of classes tried in turn, and margins in class widths.

A class counts with its mean size, so about half of the rows come out too long. A row that is
shorter by a margin makes most of them fit; the best margin was found by trial on chat-like and
uniform sizes."""
_PLACING_STEPS = 50
"""What best-fit costs for each size, in the unit of `Work`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SizeCounts:
    """What to pack: distinct sizes in decreasing order, their counts, and the row."""

    sizes: IntArray
    counts: IntArray
    max_length: int
    cap: int
    """The most documents in a row."""

    @classmethod
    def of(
        cls, sizes: IntArray, counts: IntArray, max_length: int, max_per_row: int | None
    ) -> SizeCounts:
        """The same problem in the largest unit that divides all sizes.

        >>> SizeCounts.of(np.array([64, 32]), np.array([1, 1]), 100, None)
        SizeCounts(sizes=array([2, 1]), counts=array([1, 1]), max_length=3, cap=2)
        """
        unit = int(np.gcd.reduce(sizes))
        cap = max_per_row or int(counts.sum())
        return cls(sizes=sizes // unit, counts=counts, max_length=max_length // unit, cap=cap)

    @property
    def simple_bound(self) -> int:
        """Rows needed by total size, or by number."""
        total = exact_dot(self.sizes, self.counts)
        return max(-(-total // self.max_length), -(-int(self.counts.sum()) // self.cap))

    @property
    def program_cap(self) -> int | None:
        """The cap, if the program has to know it."""
        most_that_fit = self.max_length // int(self.sizes[-1])
        return self.cap if self.cap <= min(_MOST_IN_A_ROW, most_that_fit - 1) else None

    @property
    def num_large(self) -> int:
        """Sizes that the program considers: all of them under a low cap, else all but sand."""
        if self.program_cap is not None:
            return len(self.sizes)
        return int(np.searchsorted(-self.sizes, -(self.max_length // _MOST_IN_A_ROW)))

    @property
    def sand(self) -> int:
        """The total size of the fragments in no class."""
        return int(self.sizes[self.num_large :] @ self.counts[self.num_large :])

    def classes(self, most_classes: int) -> Classes:
        """The large sizes in at most this many classes."""
        large = slice(self.num_large)
        return group_sizes(self.sizes[large], self.counts[large], most_classes, self.max_length)

    def problem(self, classes: Classes, sizes: IntArray, margin: float = 0) -> Problem:
        """The program in which each class counts with one size, in rows shorter by a margin."""
        unit = -(-self.max_length * len(classes.demands) // _CELLS)
        max_length = max(1, int((self.max_length - margin) // unit))
        return Problem(
            sizes=np.clip((sizes + unit // 2) // unit, 1, max_length),
            budgets=np.array([max_length]),
            demands=classes.demands,
            cap=self.program_cap,
            sand=self.sand / unit,
        )


def solve_patterns(
    sizes: IntArray,
    counts: IntArray,
    max_length: int,
    max_per_row: int | None,
    *,
    budget: int = BUDGET,
) -> Patterns:
    """Row patterns that hold every document once, in as few rows as the budget finds.

    Sizes are distinct and decreasing, none larger than a row.

    >>> solve_patterns(np.array([3, 2]), np.array([2, 4]), 7, None)  # best-fit needs three rows
    Patterns(contents=(((0, 1), (1, 2)),), rows=(2,))
    """
    if not len(sizes):
        return Patterns.of([])
    given = SizeCounts.of(sizes, counts, max_length, max_per_row)
    best = fill(given.sizes.tolist(), counts.tolist(), given.max_length, given.cap)
    work, cost = Work(budget), 0
    for classes, margin in _attempts(given):
        # A finer program costs at least twice the one before; half a search is worth nothing.
        if best.num_rows <= given.simple_bound or work.left <= 2 * cost:
            break
        before = work.left
        for patterns in _attempt(given, classes, margin, work):
            best = min(best, patterns, key=lambda candidate: candidate.num_rows)
        cost = before - work.left
    return best


def _attempts(given: SizeCounts) -> Iterator[tuple[Classes, float]]:
    num_large = given.num_large
    if 0 < num_large <= _EXACT_CLASSES:
        yield given.classes(num_large), 0.0
    elif num_large:
        for most_classes, margin in _ATTEMPTS:
            classes = given.classes(most_classes)
            yield classes, margin * classes.width


def _attempt(given: SizeCounts, classes: Classes, margin: float, work: Work) -> Iterator[Patterns]:
    """Plans from one linear program."""
    problem = given.problem(classes, classes.typical, margin)
    found = search_patterns(problem, first_patterns(problem), work)
    if found is None:
        return
    for counts, rows in _roundings(problem, found, work):
        for num_open in (1, 0):
            yield place(given, classes, counts, rows, num_open=num_open)
            work.spend(_PLACING_STEPS * len(given.sizes))
            if work.left <= 0:
                return


def _roundings(problem: Problem, found: Found, work: Work) -> Iterator[tuple[IntArray, IntArray]]:
    yield found.counts, found.whole
    yield found.counts, found.nearest
    value = found.relaxed.value
    if value - found.whole.sum() > 1e-4 * value:
        share = work.left // 8
        careful = Work(share)
        yield whole_rows(problem, found, careful)
        work.spend(share - careful.left)


def first_patterns(problem: Problem) -> IntArray:
    """Patterns to start from, which can serve all demands: best-fit's, and a row of only sand."""
    cap = problem.cap or int(problem.demands.sum())
    sizes = problem.sizes[:, 0].tolist()
    patterns = fill(sizes, problem.demands.tolist(), int(problem.budgets[0]), cap)
    only_sand = np.zeros((1, len(sizes)), dtype=np.int64)
    return np.concatenate([patterns.table(len(sizes)), only_sand])


def place(
    given: SizeCounts, classes: Classes, counts: IntArray, rows: IntArray, *, num_open: int
) -> Patterns:
    """Rows of real sizes for patterns of classes, completed by best-fit decreasing.

    A class has more than one size, so the last ``num_open`` documents of a pattern, its smallest,
    are not taken from their class: best-fit finds the size that fills what the others leave.
    """
    stock = Stock(given.sizes.tolist(), given.counts.tolist())
    first_size = np.searchsorted(classes.class_of, np.arange(len(classes.demands))).tolist()
    started: list[Group] = []
    for index in np.argsort(-rows, kind="stable").tolist():
        kinds = np.repeat(np.arange(counts.shape[1]), counts[index]).tolist()
        groups = [Group(int(rows[index]), given.max_length, 0, ())]
        for kind in kinds[: len(kinds) - num_open]:
            # Reversed each time, so that the larger sizes of one class meet the smaller ones of
            # the next.
            groups = [
                part for group in reversed(groups) for part in stock.serve(group, first_size[kind])
            ]
        started += groups
    return fill(stock.sizes, stock.counts, given.max_length, given.cap, started)


def exact_dot(sizes: IntArray, counts: IntArray) -> int:
    """The dot product in Python integers, which have no limit."""
    return sum(s * c for s, c in zip(sizes.tolist(), counts.tolist(), strict=True))
