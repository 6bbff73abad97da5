"""Pattern searches end when nothing improves, nothing is large, or no work is left."""

from __future__ import annotations

import numpy as np

from quire.plan.search import bound, columns, one_budget, several_budgets
from quire.plan.search.budgets import read_vectors
from quire.plan.search.columns import Problem, Work
from quire.plan.search.knapsack import Knapsack
from quire.plan.search.one_budget import SizeCounts, solve_patterns
from quire.plan.search.several_budgets import pattern_rows


def test_a_search_ends_where_no_row_is_worth_more_than_a_row(monkeypatch):
    fragments = SizeCounts.of(np.array([3, 2]), np.array([2, 4]), 7, None)
    problem = fragments.problem(fragments.classes(2), np.array([[3], [2]]))
    first = one_budget.first_patterns(problem)
    monkeypatch.setattr(Knapsack, "best_rows", lambda knapsack: first[-1:])
    found = columns.search_patterns(problem, first, Work(10**6))
    assert found is not None
    assert found.counts is first
    assert found.bound < found.relaxed.value  # it had not come near enough to end by itself


def test_documents_that_are_all_sand_need_no_program():
    sand = read_vectors([[1, 2], [2, 1], [1, 1]], [1000, 1000], None)
    row_of, num_rows = pattern_rows(sand, Work(0))
    assert (row_of.tolist(), num_rows) == ([0, 0, 0], 1)


def test_the_bound_without_documents_is_zero():
    nothing = read_vectors([[1, 1]], [10, 10], None).only(np.zeros(0, np.int64))
    assert bound._bound_of_large(nothing, 10**6) == 0


def two_classes() -> Problem:
    sizes, budgets = np.array([[5, 1], [2, 4]]), np.array([10, 10])
    return Problem(sizes=sizes, budgets=budgets, demands=np.array([3, 4]))


def test_a_search_whose_program_is_not_solved_finds_nothing():
    problem = two_classes()
    prices = np.array([0.5, 0.4])
    work = Work(1)  # no pivot for either class
    first = several_budgets.first_patterns(problem)
    assert columns.search_patterns(problem, first, work, prices) is None


def test_whole_rows_end_where_no_search_follows(monkeypatch):
    problem, prices = two_classes(), np.array([0.5, 0.4])
    first = several_budgets.first_patterns(problem)
    found = columns.search_patterns(problem, first, Work(10**7), prices)
    assert found is not None
    used = found.whole_or_largest > 0
    left = problem.demands - found.whole_or_largest @ found.counts
    assert left.max() > 0  # something is left to search for
    monkeypatch.setattr(columns, "search_patterns", lambda *given, **options: None)
    counts, rows = columns.whole_rows(problem, found, Work(10**6))
    assert (counts == found.counts[used]).all()
    assert rows.tolist() == found.whole_or_largest[used].tolist()


def test_a_search_ends_where_more_rounds_would_save_no_whole_row(monkeypatch):
    """Without that rule it solves 38 programs for the last fraction of a row."""
    lengths = np.random.default_rng(5).lognormal(6.345, 1.092, 200).astype(int)
    sizes, counts = np.unique(np.clip(lengths, 1, 1023) + 1, return_counts=True)
    programs = []

    def solve_relaxed(*given):
        programs.append(given)
        return solve(*given)

    solve = columns.solve_relaxed
    monkeypatch.setattr(columns, "solve_relaxed", solve_relaxed)
    plan = solve_patterns(sizes[::-1], counts[::-1], 1024, None)
    assert plan.num_rows == 111  # as many as the tokens need
    assert len(programs) <= 20
