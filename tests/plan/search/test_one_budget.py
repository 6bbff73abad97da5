"""How tight spends its budget: which programs it tries, when it stops, and which plan it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from quire.plan import PlanOptions
from quire.plan.search import one_budget
from quire.plan.search.columns import Work
from quire.plan.search.one_budget import SizeCounts
from quire.plan.search.patterns import Patterns
from quire.plan.strategies import tight

SIZES, COUNTS = np.array([3, 2]), np.array([2, 4])
"""In rows of 7: two rows hold them, best-fit needs three."""
THREE = Patterns(contents=(((0, 1), (1, 2)), ((0, 1),), ((1, 2),)), rows=(1, 1, 1))
TWO = Patterns(contents=(((0, 1), (1, 2)),), rows=(2,))


def fragments_of(first: int, last: int, max_length: int) -> SizeCounts:
    sizes = np.arange(first, last - 1, -1)
    return SizeCounts.of(sizes, np.ones_like(sizes), max_length, None)


def test_up_to_six_hundred_sizes_are_classes_of_their_own():
    ((classes, margin),) = one_budget._attempts(fragments_of(1600, 1001, 4096))
    assert (classes.demands.tolist(), margin) == ([1] * 600, 0.0)


def test_a_single_size_is_a_class_of_its_own():
    single = SizeCounts.of(np.array([300]), np.array([5]), 700, None)
    ((classes, margin),) = one_budget._attempts(single)
    assert (classes.demands.tolist(), margin) == ([5], 0.0)


def test_more_sizes_are_tried_in_more_and_more_classes_with_margins():
    assert len(list(one_budget._attempts(fragments_of(1601, 1001, 4096)))) == 4
    attempts = list(one_budget._attempts(fragments_of(5000, 1001, 9000)))
    assert [len(classes.demands) for classes, _ in attempts] == [150, 300, 500, 1000]
    assert [margin / classes.width for classes, margin in attempts] == pytest.approx(
        [0.6, 0.6, 0.75, 0.75]
    )


def test_sizes_that_are_all_sand_need_no_program():
    sand = SizeCounts.of(np.array([3, 2, 1]), np.array([500, 500, 500]), 1000, None)
    assert list(one_budget._attempts(sand)) == []


def scripted(monkeypatch, attempts: list[tuple[int, list[Patterns]]]) -> list[int]:
    """Make attempts with the given cost and result; return the numbers of those made."""
    made: list[int] = []

    def attempt(
        fragments: SizeCounts, number: int, margin: float, work: Work
    ) -> Iterator[Patterns]:
        made.append(number)
        cost, found = attempts[number]
        work.spend(cost)
        assert margin == number / 2
        yield from found

    numbers = range(len(attempts))
    monkeypatch.setattr(one_budget, "_attempts", lambda fragments: ((n, n / 2) for n in numbers))
    monkeypatch.setattr(one_budget, "_attempt", attempt)
    return made


@pytest.mark.parametrize(
    ("budget", "costs", "made"),
    [
        (100, [10, 40, 1], [0, 1]),  # 50 is less than twice 40
        (30, [10, 1, 1], [0]),  # 20 is twice 10
        (31, [10, 1, 1], [0, 1, 2]),
        (100, [10, 30, 1], [0, 1]),  # 60 is twice 30
        (100, [10, 29, 1], [0, 1, 2]),
        (0, [1, 1, 1], []),
        (1, [1, 1, 1], [0]),
    ],
)
def test_a_program_is_tried_while_twice_the_last_cost_is_left(monkeypatch, budget, costs, made):
    tried = scripted(monkeypatch, [(cost, [THREE]) for cost in costs])
    one_budget.solve_patterns(SIZES, COUNTS, 7, None, budget=budget)
    assert tried == made


def test_a_plan_that_cannot_be_better_ends_the_search(monkeypatch):
    tried = scripted(monkeypatch, [(1, [THREE]), (1, [THREE, TWO, THREE]), (1, [TWO])])
    assert one_budget.solve_patterns(SIZES, COUNTS, 7, None) is TWO
    assert tried == [0, 1]


def test_a_plan_that_is_not_better_is_not_kept(monkeypatch):
    scripted(monkeypatch, [(1, [THREE])])
    found = one_budget.solve_patterns(SIZES, COUNTS, 7, None)
    assert found.num_rows == 3
    assert found is not THREE


def test_no_sizes_need_no_pattern():
    nothing = np.zeros(0, dtype=np.int64)
    assert one_budget.solve_patterns(nothing, nothing, 7, None) == Patterns.of([])


class Places:
    """Replaces `place`, and records its arguments and the work that was left."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.asked: list[tuple[int, int]] = []

    def __call__(self, fragments, classes, counts, rows, *, num_open: int) -> Patterns:
        assert rows.shape == (len(counts),)
        self.asked.append((num_open, self.work.left))
        return THREE


def attempted(monkeypatch, budget: int) -> tuple[list[Patterns], Places, Work]:
    """An attempt whose search costs nothing and whose solution is not whole."""
    fragments = SizeCounts.of(SIZES, COUNTS, 7, None)
    found = SimpleNamespace(
        counts=np.array([[1, 2]]),
        whole=np.array([1]),
        nearest=np.array([2]),
        relaxed=SimpleNamespace(value=1.5),
    )
    work = Work(budget)
    places = Places(work)
    monkeypatch.setattr(one_budget, "place", places)
    monkeypatch.setattr(one_budget, "search_patterns", lambda problem, counts, work: found)
    monkeypatch.setattr(
        one_budget, "whole_rows", lambda problem, found, work: (found.counts, found.whole)
    )
    plans = list(one_budget._attempt(fragments, fragments.classes(2), 0.0, work))
    return plans, places, work


def test_every_rounding_is_placed_with_and_without_an_open_document(monkeypatch):
    plans, places, work = attempted(monkeypatch, 10_000)
    assert len(plans) == 6
    assert places.asked == [  # fifty steps for each of two sizes
        (1, 10_000), (0, 9900), (1, 9800), (0, 9700), (1, 9600), (0, 9500),
    ]  # fmt: skip
    assert work.left == 9400


@pytest.mark.parametrize(("budget", "plans"), [(301, 4), (300, 3), (100, 1), (1, 1)])
def test_placing_ends_with_the_budget(monkeypatch, budget, plans):
    assert len(attempted(monkeypatch, budget)[0]) == plans


def test_the_program_has_rows_that_are_shorter_by_the_margin(monkeypatch):
    problems = []
    monkeypatch.setattr(
        one_budget, "search_patterns", lambda problem, *given: problems.append(problem)
    )
    fragments = SizeCounts.of(SIZES, COUNTS, 7, None)
    assert list(one_budget._attempt(fragments, fragments.classes(2), 2.0, Work(100))) == []
    assert [(p.budgets.tolist(), p.sizes.tolist()) for p in problems] == [([5], [[3], [2]])]


def test_a_search_that_finds_nothing_yields_no_plan():
    fragments = SizeCounts.of(SIZES, COUNTS, 7, None)
    assert list(one_budget._attempt(fragments, fragments.classes(2), 0.0, Work(0))) == []


@pytest.mark.parametrize(("whole", "roundings"), [(10_000, 2), (9999, 2), (9998, 3)])
def test_a_solution_that_is_not_nearly_whole_is_rounded_with_care(monkeypatch, whole, roundings):
    found = SimpleNamespace(
        counts="counts",
        whole=np.array([whole]),
        nearest="nearest",
        relaxed=SimpleNamespace(value=10_000.0),
    )
    asked = []

    def whole_rows(problem: str, given: object, careful: Work) -> tuple[str, str]:
        asked.append((problem, given, careful.left))
        careful.spend(30)
        return "counts", "careful"

    monkeypatch.setattr(one_budget, "whole_rows", whole_rows)
    work = Work(807)
    results = list(one_budget._roundings("problem", found, work))
    assert (
        results
        == [("counts", found.whole), ("counts", "nearest"), ("counts", "careful")][:roundings]
    )
    assert asked == [("problem", found, 100)] * (roundings - 2)  # an eighth of what is left
    assert work.left == 807 - 30 * (roundings - 2)


@pytest.mark.parametrize(
    ("found", "rows"), [(THREE, [[1, 4], [0, 2, 3], [5]]), (TWO, [[1, 0, 2], [4, 3, 5]])]
)
def test_between_plans_with_equally_many_rows_best_fit_is_kept(monkeypatch, found, rows):
    asked = []
    monkeypatch.setattr(
        tight, "solve_patterns", lambda *given, **options: asked.append((given, options)) or found
    )
    sizes = np.array([2, 3, 2, 2, 3, 2], np.uint16)
    options = PlanOptions(max_length=7, max_documents_per_row=3)
    placed = tight.tight(sizes, 7, options, budget=77)
    parts = np.split(placed.fragments, placed.offsets[1:-1])
    assert [part.tolist() for part in parts] == rows
    (((given_sizes, given_counts, max_length, cap), budget),) = asked
    assert (given_sizes.tolist(), given_counts.tolist(), max_length, cap) == ([3, 2], [2, 4], 7, 3)
    assert budget == {"budget": 77}
    assert given_sizes.dtype == given_counts.dtype == np.int64


def test_a_row_need_not_be_larger_than_all_documents(monkeypatch):
    capacities = []
    monkeypatch.setattr(
        tight, "solve_patterns", lambda *given, **options: capacities.append(given[2]) or TWO
    )
    tight.tight(np.array([3, 2], np.uint16), 2**60, PlanOptions(max_length=2**60))
    assert capacities == [5]
