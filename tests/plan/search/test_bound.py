"""vector_bound: proven in integers, from prices that are not trusted."""

from __future__ import annotations

import itertools
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.plan.search.bound import proven_rows, vector_bound
from quire.plan.search.budgets import Vectors
from quire.plan.search.classes import Kinds, group_kinds
from quire.plan.search.columns import Work, whole_rows
from quire.plan.search.knapsack import Knapsack
from quire.plan.search.several_budgets import search_levels
from tests.lengths import documents
from tests.plan.vector_textbook import fewest_rows


def best_row(sizes, prices, budgets):
    """The value of the best row, by trying every row."""
    most = [
        min(b // s for s, b in zip(size, budgets, strict=True) if s) if any(size) else 0
        for size in sizes
    ]
    values = []
    for numbers in itertools.product(*(range(n + 1) for n in most)):
        used = np.array(numbers) @ np.array(sizes)
        if (used <= np.array(budgets)).all():
            values.append(sum(n * p for n, p in zip(numbers, prices, strict=True)))
    return max(values)


KINDS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 5), st.integers(0, 1)).filter(any),
    min_size=1,
    max_size=4,
    unique=True,
)


@settings(max_examples=80, deadline=None)
@given(KINDS, st.lists(st.integers(0, 2**40), min_size=4, max_size=4))
def test_the_table_is_as_good_as_trying_every_row(sizes, prices):
    budgets = [9, 7, 2]
    worth = np.array(prices[: len(sizes)])
    knapsack = Knapsack.solve(np.array(sizes), worth, np.array(budgets))
    assert knapsack.best == best_row(sizes, worth.tolist(), budgets)


@settings(max_examples=80, deadline=None)
@given(KINDS, st.lists(st.integers(1, 100), min_size=4, max_size=4))
def test_the_best_row_with_each_kind_holds_it_fits_and_is_optimal(sizes, prices):
    budgets, worth = np.array([9, 7, 2]), np.array(prices[: len(sizes)])
    knapsack = Knapsack.solve(np.array(sizes), worth, budgets)
    numbers = knapsack.best_rows()
    for kind, row in enumerate(numbers):
        assert row[kind] >= 1
        assert (row @ np.array(sizes) <= budgets).all()
        rest = (budgets - np.array(sizes[kind])).tolist()
        assert row @ worth == worth[kind] + best_row(sizes, worth.tolist(), rest)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 6)).filter(any), min_size=1, max_size=7),
    st.lists(st.floats(0, 2), min_size=7, max_size=7),
)
def test_no_prices_prove_more_than_the_optimum(sizes, prices):
    """Poor prices prove little, but never too much."""
    kinds = Kinds.of(Vectors(sizes=np.array(sizes), budgets=np.array([9, 6])))
    proven = proven_rows(kinds, np.array(prices[: len(kinds.counts)]))
    assert proven <= fewest_rows(sizes, [9, 6], None)


def test_coarse_units_and_classes_only_weaken_the_proof(monkeypatch):
    sizes = np.random.default_rng(3).integers(1, 60, (9, 2))
    kinds = Kinds.of(Vectors(sizes=sizes, budgets=np.array([100, 100])))
    prices = kinds.vectors.shares.max(axis=1)
    exact, optimum = proven_rows(kinds, prices), fewest_rows(sizes, [100, 100], None)
    for classes, steps in ((9, 9 * 1000), (4, 4 * 1000), (9, 9 * 20), (2, 2)):
        monkeypatch.setattr("quire.plan.search.bound._MOST_CLASSES", classes)
        monkeypatch.setattr("quire.plan.search.bound._STEPS", steps)
        assert proven_rows(kinds, prices) <= optimum
    assert 0 < exact <= optimum


def test_a_class_counts_as_its_smallest_document(monkeypatch):
    """Counted as its largest size, of which two fill a row, it would need four rows."""
    monkeypatch.setattr("quire.plan.search.bound._MOST_CLASSES", 1)
    kinds = Kinds.of(Vectors(sizes=np.array([[3, 1]] * 6 + [[5, 1]]), budgets=np.array([10, 9])))
    assert proven_rows(kinds, np.array([0.5, 0.5])) == 3


def test_sizes_in_larger_units_are_rounded_down(monkeypatch):
    """Two documents of 5 fit into 11; rounded up to 6 they would not."""
    monkeypatch.setattr("quire.plan.search.bound._STEPS", 60)
    kinds = Kinds.of(Vectors(sizes=np.array([[5, 1]] * 4), budgets=np.array([11, 9])))
    assert group_kinds(kinds, 1, 60).budgets.tolist() == [5, 9]
    assert proven_rows(kinds, np.array([0.5])) == 2


@pytest.mark.parametrize(
    ("sizes", "budgets", "max_items", "bound"),
    [
        ([[5, 1], [5, 3], [5, 2]], [10, 3], None, 2),
        ([[4, 1]] * 10, [10, 3], None, 5),
        ([[1, 1]] * 10, [10, 10], 3, 4),
        ([[1, 1]] * 10, [10, 10], None, 1),
        ([[6, 1], [6, 1], [1, 6], [1, 6]], [10, 10], None, 2),
        ([[6, 2], [2, 6], [5, 5], [5, 5]], [10, 10], None, 2),
        ([[6, 1], [1, 6], [5, 5]] * 4, [10, 10], None, 6),
        ([[size] for size in (11, 15, 5, 5, 17, 17, 12, 12)], [32], None, 4),  # 94 of 96 tokens
        ([[size, 1] for size in (11, 15, 5, 5, 17, 17, 12, 12)], [32, 8], None, 4),
    ],
)
def test_small_bounds_equal_those_computed_by_hand(sizes, budgets, max_items, bound):
    assert vector_bound(sizes, budgets, max_items=max_items) == bound


def test_the_program_proves_more_than_any_single_dimension(monkeypatch):
    """Two documents fit together by tokens or by tiles, but never by both."""
    sizes = [[6, 5], [5, 6]] * 6
    assert vector_bound(sizes, [10, 10]) == 12
    _without_scipy(monkeypatch)
    assert vector_bound(sizes, [10, 10]) == 9


def test_without_scipy_the_bound_is_of_single_dimensions_and_a_warning_is_logged(
    monkeypatch, caplog
):
    _without_scipy(monkeypatch)
    assert vector_bound([[6, 5], [5, 6]] * 6, [10, 10]) == 9
    assert [record.getMessage() for record in caplog.records] == [
        "vector_bound without scipy gives only the bounds of single dimensions; for the pattern "
        "program: pip install 'quire-pack[solver]'"
    ]


def _without_scipy(monkeypatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "scipy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scipy", None)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "bound"), [("chartqa_vl", 1563), ("ai2d_vl", 552)])
def test_the_bound_of_real_documents_at_56_tiles(name, bound):
    assert vector_bound(documents(name), [16_384, 56]) == bound


def test_the_tile_budget_proves_the_bound_of_the_chart_questions():
    """Prices by hand: 5 tiles cost 1/11 and so on; no row of 56 tiles is worth more than one."""
    price = {5: Fraction(1, 11), 4: Fraction(3, 44), 3: Fraction(1, 22), 1: Fraction(0)}
    best = [Fraction(0)] * 57
    for space, tiles in itertools.product(range(57), price):
        if tiles <= space:
            best[space] = max(best[space], best[space - tiles] + price[tiles])
    demand = {5: 16_628, 4: 14, 3: 1096, 1: 579}
    total = sum(demand[tiles] * price[tiles] for tiles in price)
    assert best[56] == 1
    assert -(-total // 1) == 1563


# The parts.


def test_classes_hold_their_kinds_between_two_corners():
    sizes = np.random.default_rng(0).integers(1, 1000, (300, 2))
    kinds = Kinds.of(Vectors(sizes=sizes, budgets=np.array([1000, 3000])))
    for most_classes, most_cells in ((10, 10_000), (300, 10**7), (1, 4)):
        classes = group_kinds(kinds, most_classes, most_cells)
        assert len(classes.demands) <= most_classes
        assert classes.demands.sum() == 300
        assert np.prod(classes.budgets + 1) <= most_cells
        unit = [1000, 3000] // classes.budgets  # or a little more
        largest = classes.largest[classes.class_of]
        assert (classes.smallest[classes.class_of] <= largest).all()
        assert (kinds.vectors.sizes <= largest * (unit + 1)).all()
        assert (largest <= classes.budgets).all()


def test_few_kinds_are_classes_of_their_own():
    sizes = np.array([[3, 1], [2, 2], [3, 1], [4, 4]])
    classes = group_kinds(Kinds.of(Vectors(sizes=sizes, budgets=np.array([9, 9]))), 10, 1000)
    assert sorted(classes.class_of.tolist()) == [0, 1, 2]
    assert (classes.largest == classes.smallest).all()
    assert (classes.largest == classes.typical).all()


def test_whole_rows_serve_all_demands():
    sizes = np.random.default_rng(0).integers(1, 9, (200, 2))
    kinds = Kinds.of(Vectors(sizes=sizes, budgets=np.array([20, 20])))
    level = search_levels(kinds, "largest", Work(10_000_000))
    assert level is not None
    counts, rows = whole_rows(level.problem, level.found, Work(10_000_000))
    assert (counts @ level.problem.sizes <= 20).all()
    assert (rows @ counts >= level.problem.demands).all()
    assert rows.sum() <= np.ceil(level.found.relaxed.value) + 3
    assert level.found.bound <= level.found.relaxed.value * (1 + 1e-9)
