"""tight: as few rows as the pattern program finds, never more than best-fit."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.errors import MissingDependency
from quire.plan.search.bound import pattern_bound
from quire.plan.search.columns import solve_relaxed
from quire.plan.search.knapsack import Knapsack
from quire.plan.search.one_budget import SizeCounts, solve_patterns
from quire.plan.search.patterns import Group, Patterns, fill
from tests.lengths import wikipedia
from tests.plan.textbook import decreasing_fit
from tests.quick import few


def histogram(lengths) -> tuple[np.ndarray, np.ndarray]:
    sizes, counts = np.unique(np.asarray(lengths, dtype=np.int64), return_counts=True)
    return sizes[::-1], counts[::-1]


def check(patterns: Patterns, sizes, counts, max_length: int, cap: int | None) -> None:
    """Every fragment once, no row too full, no row over the cap."""
    assert (np.array(patterns.rows) @ patterns.table(len(sizes))).tolist() == list(counts)
    assert all(rows >= 1 for rows in patterns.rows)
    for pattern in patterns.contents:
        assert sum(int(sizes[size]) * number for size, number in pattern) <= max_length
        assert 1 <= sum(number for _, number in pattern) <= (cap or len(counts) * max(counts))


def fewest_rows(lengths: list[int], max_length: int, cap: int) -> int:
    """The optimum by exhaustive search; for a handful of documents."""
    lengths = sorted(lengths, reverse=True)
    best = len(lengths)

    def place(document: int, rows: list[tuple[int, int]]) -> None:
        nonlocal best
        if len(rows) >= best:
            return
        if document == len(lengths):
            best = len(rows)
            return
        size = lengths[document]
        for row in set(rows):
            space, held = row
            if space >= size and held < cap:
                others = rows.copy()
                others.remove(row)
                place(document + 1, [*others, (space - size, held + 1)])
        place(document + 1, [*rows, (max_length - size, 1)])

    place(0, [])
    return best


@pytest.mark.parametrize(
    ("lengths", "max_length", "cap", "best_fit_rows", "fewest"),
    [
        ([3, 3, 2, 2, 2, 2], 7, None, 3, 2),
        ([4, 4, 3, 3, 2, 2], 9, None, 3, 2),
        ([5, 4, 4, 3, 2, 2], 10, None, 3, 2),
        ([6, 6, 5, 5, 2, 2], 13, None, 3, 2),
        ([3, 3, 2, 2, 2, 2] * 1000, 7, None, 2334, 2000),
        ([7, 6, 3, 2, 1, 1], 10, 3, 3, 2),
    ],
)
def test_known_cases_where_best_fit_wastes_a_row(lengths, max_length, cap, best_fit_rows, fewest):
    options = {"max_documents_per_row": cap}
    assert quire.make_plan(lengths, max_length, "best_fit", **options).num_rows == best_fit_rows
    assert quire.make_plan(lengths, max_length, "tight", **options).num_rows == fewest
    assert pattern_bound(*histogram(lengths), max_length, cap) <= fewest


def test_rows_hold_their_documents_largest_first_and_equal_ones_in_input_order():
    plan = quire.make_plan([2, 3, 2, 2, 3, 2], 7, "tight")
    assert [[f.document for f in row] for row in plan] == [[1, 0, 2], [4, 3, 5]]


def test_two_sizes_near_half_a_row_are_paired_small_with_large():
    lengths = [2047, 2049] * 500
    assert quire.make_plan(lengths, 4096, "tight").num_rows == 500


def test_documents_too_long_to_share_a_row_get_one_each():
    assert quire.make_plan([2049] * 300 + [4096], 4096, "tight").num_rows == 301


def test_no_documents_need_no_rows():
    assert quire.make_plan([], 10, "tight").num_rows == 0
    assert pattern_bound(np.zeros(0, np.int64), np.zeros(0, np.int64), 10, None) == 0


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=60),
    max_length=st.integers(60, 70),
    cap=st.one_of(st.none(), st.integers(1, 6), st.just(70)),
)
@settings(max_examples=150, deadline=None)
def test_every_fragment_is_placed_once_in_no_more_rows_than_the_textbook(lengths, max_length, cap):
    sizes, counts = histogram(lengths)
    patterns = solve_patterns(sizes, counts, max_length, cap, budget=2_000_000)
    check(patterns, sizes, counts, max_length, cap)
    plan = quire.make_plan(lengths, max_length, "tight", max_documents_per_row=cap)
    textbook = decreasing_fit(lengths, max_length, cap or len(lengths), best=True)
    assert pattern_bound(sizes, counts, max_length, cap) <= plan.num_rows <= len(textbook)


@given(
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=9),
    max_length=st.integers(25, 40),
    cap=st.one_of(st.none(), st.integers(1, 4)),
)
@settings(max_examples=150, deadline=None)
def test_the_bound_never_exceeds_the_optimum_nor_the_optimum_the_plan(lengths, max_length, cap):
    sizes, counts = histogram(lengths)
    optimum = fewest_rows(lengths, max_length, cap or len(lengths))
    rows = solve_patterns(sizes, counts, max_length, cap).num_rows
    assert pattern_bound(sizes, counts, max_length, cap) <= optimum <= rows


@pytest.mark.parametrize("cap", [None, 3])
def test_many_sizes_in_classes_come_near_the_bound_where_best_fit_does_not(cap):
    rng = np.random.default_rng(0)
    lengths = np.minimum(4096, rng.lognormal(7.0, 0.42, 20_000)).astype(int)
    sizes, counts = histogram(lengths)
    assert len(sizes) > 2000
    patterns = solve_patterns(sizes, counts, 4096, cap, budget=15_000_000)
    check(patterns, sizes, counts, 4096, cap)
    bound = pattern_bound(sizes, counts, 4096, cap, budget=15_000_000)
    best_fit = quire.make_plan(lengths, 4096, "best_fit", max_documents_per_row=cap).num_rows
    assert bound <= patterns.num_rows < bound + 0.35 * (best_fit - bound)


@pytest.mark.parametrize("max_length", few([131_072, 131_071, 1_000_003], one_in=3))
def test_large_rows_are_measured_in_larger_units(max_length):
    rng = np.random.default_rng(1)
    lengths = rng.integers(max_length // 4, max_length // 2, 3000)
    sizes, counts = histogram(lengths)
    patterns = solve_patterns(sizes, counts, max_length, None, budget=10_000_000)
    check(patterns, sizes, counts, max_length, None)
    bound = pattern_bound(sizes, counts, max_length, None, budget=10_000_000)
    textbook = fill(sizes.tolist(), counts.tolist(), max_length, len(lengths)).num_rows
    assert bound <= patterns.num_rows < textbook


@pytest.mark.parametrize("cap", [None, 2, 64])
def test_the_bound_counts_tokens_and_not_units_in_large_rows(cap):
    sizes = np.arange(65_536, 43_690, -20)  # all over a third of a row, none over a half
    counts = np.full(len(sizes), 2)
    assert pattern_bound(sizes, counts, 131_072, cap) == len(sizes)


def test_small_documents_fill_what_the_large_ones_leave():
    large = [3] * 200 + [2] * 400  # of 7, as above: best-fit wastes a third
    lengths = [100 * size for size in large] + [1] * 5000
    sizes, counts = histogram(lengths)
    patterns = solve_patterns(sizes, counts, 725, None)
    check(patterns, sizes, counts, 725, None)
    assert patterns.num_rows == pattern_bound(sizes, counts, 725, None) == 200


def test_without_budget_the_plan_is_best_fits():
    sizes, counts = histogram([3, 3, 2, 2, 2, 2])
    assert solve_patterns(sizes, counts, 7, None, budget=0).num_rows == 3
    assert pattern_bound(sizes, counts, 7, None, budget=0) == 2


def test_alignment_and_prefix_count_as_space():
    lengths = [9, 10, 3, 4, 5, 6]  # spaces 12 12 8 8 8 8 of 28: the first case above, times four
    plan = quire.make_plan(lengths, 31, "tight", align=4, prefix=2)
    assert plan.num_rows == 2
    assert quire.make_plan(lengths, 31, "best_fit", align=4, prefix=2).num_rows == 3


def test_counts_beyond_32_bits_are_exact():
    sizes, counts = np.array([3, 2]), np.array([2 * 10**10, 4 * 10**10])
    patterns = solve_patterns(sizes, counts, 7, None)
    check(patterns, sizes, counts, 7, None)
    assert patterns.num_rows == pattern_bound(sizes, counts, 7, None) == 2 * 10**10


_DIGEST = """
import hashlib, numpy as np
from quire.plan.search.one_budget import solve_patterns
lengths = np.minimum(2048, np.random.default_rng(2).lognormal(6.2, 0.5, 5000)).astype(int)
sizes, counts = np.unique(lengths, return_counts=True)
patterns = solve_patterns(sizes[::-1], counts[::-1], 2048, 4, budget=10_000_000)
print(hashlib.sha256(repr(patterns).encode()).hexdigest())
"""


def test_two_processes_find_the_same_plan():
    source = str(Path(quire.__file__).parents[1])
    digests = {
        subprocess.run(
            [sys.executable, "-c", _DIGEST],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads, "PYTHONPATH": source},
        ).stdout
        for seed, threads in (("1", "1"), ("2", "2"))
    }
    assert len(digests) == 1


def test_two_runs_find_the_same_plan():
    lengths = np.random.default_rng(3).integers(200, 500, 300)
    digests = {
        hashlib.sha256(quire.make_plan(lengths, 1024, "tight").documents.tobytes()).hexdigest()
        for _ in range(2)
    }
    assert len(digests) == 1


@pytest.mark.parametrize("lengths", [[3, 3, 2, 2, 2, 2], [7]])
def test_without_scipy_the_error_says_what_to_install(monkeypatch, lengths):
    for name in [name for name in sys.modules if name.split(".")[0] == "scipy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingDependency) as caught:
        quire.make_plan(lengths, 7, "tight")
    assert str(caught.value) == (
        "strategy='tight' needs scipy, which is not installed; run: "
        "pip install 'quire-pack[solver]'"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cap", "utilization"), [(3, 0.9975), (16, 0.9998), (None, 0.9998)], ids=str
)
def test_wikipedia_is_packed_as_well_as_published_solvers_do(cap, utilization):
    numbers = wikipedia()
    sizes = (np.flatnonzero(numbers) + 1)[::-1]
    counts = numbers[sizes - 1]
    patterns = solve_patterns(sizes, counts, 512, cap)
    check(patterns, sizes, counts, 512, cap)
    assert int(sizes @ counts) / (patterns.num_rows * 512) > utilization


# The parts.


def test_fill_is_textbook_best_fit_where_nothing_is_capped():
    rng = np.random.default_rng(4)
    for _ in range(100):
        lengths = rng.integers(1, 41, rng.integers(1, 60)).tolist()
        sizes, counts = histogram(lengths)
        patterns = fill(sizes.tolist(), counts.tolist(), 50, len(lengths))
        check(patterns, sizes, counts, 50, None)
        assert patterns.num_rows == len(decreasing_fit(lengths, 50, len(lengths), best=True))


def test_fill_completes_started_rows_before_it_opens_new_ones():
    started = [Group(2, 4, 1, ((0, 1),))]
    assert fill([6, 4], [0, 3], 10, 2, started) == Patterns(
        contents=(((0, 1), (1, 1)), ((1, 1),)), rows=(2, 1)
    )


@pytest.mark.parametrize("cap", [None, 1, 2, 3])
@pytest.mark.parametrize("space_price", [0.0, 0.01])
def test_the_knapsack_finds_the_best_row_that_holds_each_size(cap, space_price):
    rng = np.random.default_rng(5)
    for _ in range(20):
        sizes = np.sort(rng.choice(np.arange(2, 20), 5, replace=False))[::-1]
        prices = rng.random(5)
        knapsack = Knapsack.solve(sizes[:, None], prices, np.array([30]), cap, space_price)
        rows = knapsack.best_rows()
        assert (rows @ sizes <= 30).all()
        assert (rows.sum(axis=1) <= (cap or 30)).all()
        assert (rows.diagonal() >= 1).all()
        worth = rows @ prices + (30 - rows @ sizes) * space_price
        assert np.allclose(worth, _best_worths(sizes, prices, 30, cap or 30, space_price))
        assert knapsack.best == pytest.approx(max(worth.max(), 30 * space_price))


def _best_worths(sizes, prices, max_length, cap, space_price) -> list[float]:
    """The value of the best row with each size, by exhaustive search."""

    @cache
    def best(space: int, more: int) -> float:
        fitting = [i for i, size in enumerate(sizes) if size <= space and more]
        others = [prices[i] + best(space - sizes[i], more - 1) for i in fitting]
        return max([space * space_price, *others])

    return [prices[i] + best(max_length - s, cap - 1) for i, s in enumerate(sizes)]


def test_classes_cover_all_large_sizes_and_leave_the_others_as_sand():
    sizes, counts = np.arange(100, 0, -1), np.arange(1, 101)
    given = SizeCounts.of(sizes, counts, 10 * 64, None)
    classes = given.classes(7)
    assert len(classes.demands) <= 7
    assert np.diff(classes.class_of).tolist().count(1) == len(classes.demands) - 1
    assert len(classes.class_of) == given.num_large == 90
    assert classes.demands.sum() == counts[:90].sum()
    assert (classes.smallest <= classes.typical).all()
    assert (classes.typical <= classes.largest).all()
    assert given.sand == sizes[90:] @ counts[90:]


def test_the_program_gives_room_to_smaller_fragments_but_not_to_larger_ones():
    column = np.array([[0.0, 2.0, 0.0]])
    smaller = solve_relaxed(column, np.array([0.0, 0.0, 6.0]), chain=3, max_pivots=100)
    assert smaller is not None
    assert smaller.value == pytest.approx(3)
    assert smaller.prices[1] == pytest.approx(0.5)
    larger = solve_relaxed(column, np.array([6.0, 0.0, 0.0]), chain=3, max_pivots=100)
    assert larger is None


def test_the_program_counts_small_documents_as_rows_of_sand():
    fragments = SizeCounts.of(np.array([300, 200, 1]), np.array([2, 4, 1450]), 725, None)
    problem = fragments.problem(fragments.classes(10), np.array([[300], [200]]))
    assert problem.needs.tolist() == [2, 4, 2]
    assert problem.columns(np.array([[1, 1]])) == pytest.approx(np.array([[1, 1, 225 / 725]]))


def test_runs_hold_every_fragment_of_the_decreasing_order_once():
    patterns = Patterns(contents=(((0, 1), (2, 2)), ((1, 2),), ((0, 2),)), rows=(2, 1, 1))
    assert np.array(patterns.runs()).reshape(-1, 4).tolist() == [
        [0, 2, 1, 0],
        [3, 1, 2, 0],
        [2, 1, 2, 0],
        [0, 2, 2, 1],
    ]
