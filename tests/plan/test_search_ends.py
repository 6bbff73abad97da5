"""Searches for patterns end where nothing is better, nothing is large, or no work is left."""

from __future__ import annotations

import numpy as np

from quire.plan import pattern_program, pattern_search, vector_bound, vector_search
from quire.plan.pattern_problem import Fragments
from quire.plan.pattern_search import Work
from quire.plan.strategies.tight import solve_patterns
from quire.plan.vector_placing import pattern_rows
from quire.plan.vector_search import Problem
from quire.plan.vector_sizes import read_vectors


def test_a_search_ends_where_no_row_is_worth_more_than_a_row(monkeypatch):
    fragments = Fragments.of(np.array([3, 2]), np.array([2, 4]), 7, None)
    problem = fragments.problem(fragments.classes(2), np.array([3, 2]))
    first = pattern_search.first_patterns(problem)
    monkeypatch.setattr(pattern_search, "_worth_more_than_a_row", lambda *given: first[:0])
    found = pattern_search.search_patterns(problem, first, Work(10**6))
    assert found is not None
    assert found.numbers is first
    assert found.bound < found.relaxed.value  # it had not come near enough to end by itself


def test_documents_that_are_all_sand_need_no_program():
    sand = read_vectors([[1, 2], [2, 1], [1, 1]], [1000, 1000], None)
    row_of, num_rows = pattern_rows(sand, Work(0))
    assert (row_of.tolist(), num_rows) == ([0, 0, 0], 1)


def test_no_documents_have_no_bound():
    nothing = read_vectors([[1, 1]], [10, 10], None).only(np.zeros(0, np.int64))
    assert vector_bound._pattern_bound(nothing, 10**6) == 0


def two_classes() -> Problem:
    vectors = read_vectors([[5, 1], [2, 4]], [10, 10], None)
    return Problem(vectors=vectors, demands=np.array([3, 4]))


def test_a_search_whose_program_is_not_solved_finds_nothing():
    problem = two_classes()
    prices = np.array([0.5, 0.4])
    work = Work(1)  # no pivot for either class
    first = vector_search.first_patterns(problem)
    assert vector_search.search_patterns(problem, first, prices, work) is None


def test_whole_rows_end_where_no_search_follows(monkeypatch):
    problem, prices = two_classes(), np.array([0.5, 0.4])
    found = vector_search.search_patterns(
        problem, vector_search.first_patterns(problem), prices, Work(10**7)
    )
    assert found is not None
    used = found.whole > 0
    left = problem.demands - found.whole @ found.numbers
    assert left.max() > 0  # something is left to search for
    monkeypatch.setattr(vector_search, "search_patterns", lambda *given, **options: None)
    numbers, rows = vector_search.whole_rows(problem, found, Work(10**6))
    assert (numbers == found.numbers[used]).all()
    assert rows.tolist() == found.whole[used].tolist()


def test_a_search_ends_where_more_rounds_would_save_no_whole_row(monkeypatch):
    """38 programs where it goes on for the last fraction of a row."""
    lengths = np.random.default_rng(5).lognormal(6.345, 1.092, 200).astype(int)
    sizes, counts = np.unique(np.clip(lengths, 1, 1023) + 1, return_counts=True)
    programs = []

    def solve_relaxed(*given):
        programs.append(given)
        return pattern_program.solve_relaxed(*given)

    monkeypatch.setattr(pattern_search, "solve_relaxed", solve_relaxed)
    plan = solve_patterns(sizes[::-1], counts[::-1], 1024, None)
    assert plan.num_rows == 111  # as many as the tokens need
    assert len(programs) <= 20
