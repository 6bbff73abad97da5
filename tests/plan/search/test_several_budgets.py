"""pack_vectors: every row within every budget, in few rows."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.errors import InvalidOption
from quire.plan.search.bound import vector_bound
from quire.plan.search.budgets import Vectors
from quire.plan.search.columns import Work
from quire.plan.search.fit import fit_vectors, improve
from quire.plan.search.several_budgets import pack_vectors, pattern_rows
from tests.lengths import documents
from tests.plan.vector_textbook import fewest_rows, first_fit_in_a_buffer, naive_best_fit

EFFORTS = pytest.mark.parametrize("effort", ["fast", "full"])


def check(row_of: np.ndarray, sizes, budgets, max_items: int | None = None) -> int:
    """The number of rows; all are used, numbered by first document, and within the budgets."""
    sizes = np.asarray(sizes, dtype=np.int64).reshape(-1, len(budgets))
    assert row_of.shape == (len(sizes),)
    num_rows = int(row_of.max(initial=-1)) + 1
    firsts = [int(np.flatnonzero(row_of == row)[0]) for row in range(num_rows)]
    assert firsts == sorted(firsts)
    loads = np.zeros((num_rows, len(budgets)), dtype=np.int64)
    np.add.at(loads, row_of, sizes)
    assert (loads <= np.asarray(budgets)).all()
    if max_items is not None:
        assert np.bincount(row_of, minlength=1).max() <= max_items
    return num_rows


@st.composite
def problems(draw, most_documents=24, most_dimensions=4):
    """Sizes, budgets and a cap; each document fits into a row and is not empty."""
    num_dimensions = draw(st.integers(1, most_dimensions))
    budgets = draw(st.lists(st.integers(1, 40), min_size=num_dimensions, max_size=num_dimensions))
    document = st.tuples(*(st.integers(0, budget) for budget in budgets)).filter(any)
    sizes = draw(st.lists(document, max_size=most_documents))
    return sizes, budgets, draw(st.none() | st.integers(1, 5))


@EFFORTS
@pytest.mark.parametrize(
    ("sizes", "budgets", "max_items", "rows"),
    [
        ([[6, 1], [5, 2], [4, 3], [5, 2]], [10, 4], None, [0, 1, 0, 1]),
        ([[6, 4], [6, 4], [4, 0], [4, 0]], [10, 4], None, [0, 1, 0, 1]),  # text fills image rows
        ([[1, 1], [1, 1], [1, 1]], [9, 9], 2, [0, 0, 1]),
        ([[1, 1], [1, 1], [1, 1]], [9, 2], None, [0, 0, 1]),
        ([[3, 0], [2, 9], [4, 0]], [9, 9], None, [0, 0, 0]),
        ([[7, 1]], [7, 1], None, [0]),
        ([[8], [6], [4], [2]], [10], None, [0, 1, 1, 0]),
    ],
)
def test_small_cases_equal_those_computed_by_hand(effort, sizes, budgets, max_items, rows):
    row_of = pack_vectors(sizes, budgets, max_items=max_items, effort=effort)
    assert row_of.tolist() == rows


@EFFORTS
@pytest.mark.parametrize("sizes", [[], np.zeros((0, 2), dtype=np.int64)], ids=["list", "array"])
def test_no_documents_need_no_rows(sizes, effort):
    assert pack_vectors(sizes, [10, 4], effort=effort).tolist() == []
    assert vector_bound(sizes, [10, 4]) == 0


def test_documents_of_size_zero_in_the_dimension_that_matters_fit_anywhere():
    """Tokens are no limit; the document of only text takes no tile."""
    assert pack_vectors([[5, 2], [5, 0], [5, 2]], [100, 2]).tolist() == [0, 0, 1]


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 3), st.sampled_from(["fast", "full"]))
def test_every_document_is_in_one_row_within_all_budgets(problem, seed, effort):
    sizes, budgets, cap = problem
    row_of = pack_vectors(sizes, budgets, max_items=cap, seed=seed, effort=effort)
    num_rows = check(row_of, sizes, budgets, cap)
    assert vector_bound(sizes, budgets, max_items=cap) <= num_rows


@settings(max_examples=40, deadline=None)
@given(
    problems(most_documents=12),
    st.randoms(use_true_random=False),
    st.sampled_from(["fast", "full"]),
)
def test_the_order_of_dimensions_changes_nothing(problem, random, effort):
    sizes, budgets, cap = problem
    order = list(range(len(budgets)))
    random.shuffle(order)
    turned = [[document[d] for d in order] for document in sizes]
    turned_budgets = [budgets[d] for d in order]
    expected = pack_vectors(sizes, budgets, max_items=cap, effort=effort)
    found = pack_vectors(turned, turned_budgets, max_items=cap, effort=effort)
    assert found.tolist() == expected.tolist()


@settings(max_examples=60, deadline=None)
@given(problems(most_documents=7, most_dimensions=3))
def test_tiny_plans_lie_between_the_optimum_and_one_row_more(problem):
    sizes, budgets, cap = problem
    optimum = fewest_rows(sizes, budgets, cap)
    full = check(pack_vectors(sizes, budgets, max_items=cap), sizes, budgets, cap)
    assert vector_bound(sizes, budgets, max_items=cap) <= optimum <= full <= optimum + 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=40),
    st.none() | st.integers(1, 4),
    st.sampled_from(["fast", "full"]),
)
def test_one_dimension_needs_no_more_rows_than_best_fit(lengths, cap, effort):
    row_of = pack_vectors([[n] for n in lengths], [30], max_items=cap, effort=effort)
    best_fit = quire.make_plan(lengths, 30, "best_fit", max_documents_per_row=cap)
    assert check(row_of, [[n] for n in lengths], [30], cap) <= best_fit.num_rows


def test_one_dimension_is_packed_by_the_pattern_program_where_best_fit_wastes_rows():
    lengths = [3, 3, 2, 2, 2, 2] * 100
    assert quire.make_plan(lengths, 7, "best_fit").num_rows == 234
    sizes = [[length, 1] for length in lengths]
    assert check(pack_vectors(sizes, [7, 50]), sizes, [7, 50]) == 200


def test_seeds_may_differ_but_each_repeats_itself():
    sizes = np.random.default_rng(5).integers(1, 400, (300, 2))
    for seed in (0, 1):
        first = pack_vectors(sizes, [1000, 1000], seed=seed, effort="fast")
        again = pack_vectors(sizes, [1000, 1000], seed=seed, effort="fast")
        assert first.tolist() == again.tolist()


_HASH_PLAN = """
import hashlib, numpy as np
from quire.plan.search.several_budgets import pack_vectors
sizes = np.random.default_rng(2).integers(1, 9, (150, 2)) * [50, 1]
print(hashlib.sha256(pack_vectors(sizes, [1700, 31]).tobytes()).hexdigest())
"""


def test_another_process_with_another_hash_seed_finds_the_same_rows():
    sizes = np.random.default_rng(2).integers(1, 9, (150, 2)) * [50, 1]
    here = hashlib.sha256(pack_vectors(sizes, [1700, 31]).tobytes()).hexdigest()
    there = subprocess.run(
        [sys.executable, "-c", _HASH_PLAN],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(quire.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == here


def test_the_module_loads_no_scipy():
    code = "import sys, quire.plan.search.bound; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_without_scipy_full_effort_is_best_fit_and_logs_a_warning(monkeypatch, caplog):
    sizes = np.random.default_rng(0).integers(1, 400, (100, 2))
    fast = pack_vectors(sizes, [1000, 1000], effort="fast").max()
    for name in [name for name in sys.modules if name.split(".")[0] == "scipy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scipy", None)
    full = pack_vectors(sizes, [1000, 1000])
    assert check(full, sizes, [1000, 1000]) <= fast + 1
    assert [record.getMessage() for record in caplog.records] == [
        "pack_vectors(effort='full') without scipy gives only best-fit; for the pattern program: "
        "pip install 'quire-pack[solver]'"
    ]


def test_less_work_never_breaks_a_budget_and_none_is_best_fit():
    sizes = np.random.default_rng(3).integers(1, 40, (120, 2))
    rows = [check(pack_vectors(sizes, [90, 90], work=work), sizes, [90, 90]) for work in (0, 10**6)]
    assert rows[1] <= rows[0] <= naive_best_fit(sizes, [90, 90])
    with pytest.raises(InvalidOption, match="work is -1"):
        pack_vectors(sizes, [90, 90], work=-1)


# Real documents.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tiles", "proven", "rows"),
    [
        ("chartqa_vl", 56, 1563, 1565),
        ("ai2d_vl", 56, 552, 552),
        ("chartqa_vl", 64, 1460, 1461),
        ("ai2d_vl", 64, 524, 524),
    ],
)
def test_real_documents_come_within_half_a_percent_of_a_proven_bound(name, tiles, proven, rows):
    sizes, budgets = documents(name), [16_384, tiles]
    found = check(pack_vectors(sizes, budgets), sizes, budgets)
    assert found <= rows <= 1.005 * proven
    assert found <= first_fit_in_a_buffer(sizes, budgets, most_open=20)
    assert found < naive_best_fit(sizes, budgets)


def test_buffers_of_real_documents_are_packed_as_tightly_as_tiles_allow():
    """Eight buffers of 512 documents each."""
    sizes = documents("ai2d_vl")
    for buffer in sizes[: 8 * 512].reshape(8, 512, 2):
        num_rows = check(pack_vectors(buffer, [16_384, 56], effort="fast"), buffer, [16_384, 56])
        assert num_rows == -(-int(buffer[:, 1].sum()) // 56)


# The parts.


def test_likeness_sends_a_document_where_its_own_dimension_is_free():
    vectors = Vectors(sizes=np.array([[8, 2], [2, 8], [1, 5], [5, 1]]), budgets=np.array([14, 14]))
    started = np.array([[9, 4], [4, 9]])
    row_of, num_rows = fit_vectors(vectors, np.array([2, 3]), "most_alike", started)
    assert (row_of.tolist(), num_rows) == ([-1, -1, 1, 0], 2)


def test_best_fit_fills_started_rows_before_it_opens_new_ones():
    vectors = Vectors(sizes=np.array([[3, 1], [3, 1], [9, 9]]), budgets=np.array([9, 9]))
    row_of, num_rows = fit_vectors(vectors, np.arange(3), started=np.array([[2, 9], [3, 1]]))
    assert (row_of.tolist(), num_rows) == ([1, 2, 3], 4)


def test_more_rows_than_may_stay_open_lose_only_the_fullest(monkeypatch):
    monkeypatch.setattr("quire.plan.search.fit.MOST_OPEN", 20)
    sizes = np.array([[6, 1]] * 60 + [[5, 1]] * 60 + [[4, 1]] * 30)
    vectors = Vectors(sizes=sizes, budgets=np.array([10, 5]))
    row_of, num_rows = fit_vectors(vectors, np.arange(len(sizes)))
    loads = np.zeros((num_rows, 2), dtype=np.int64)
    np.add.at(loads, row_of, sizes)
    assert (loads <= vectors.budgets).all()
    assert row_of.min() == 0
    assert num_rows > 90  # what an unlimited number of open rows would need


def test_repacking_some_rows_never_needs_more_rows():
    sizes = np.random.default_rng(1).integers(1, 50, (120, 2))
    vectors = Vectors(sizes=sizes, budgets=np.array([100, 100]))
    apart = np.arange(120)
    better = improve(vectors, apart, bound=0, tries=300, seed=0)
    loads = np.zeros((int(better.max()) + 1, 2), dtype=np.int64)
    np.add.at(loads, better, sizes)
    assert (loads > 0).all()
    assert (loads <= 100).all()
    assert len(loads) < 50  # of 120


@pytest.mark.parametrize("seed", range(8))
def test_a_good_plan_is_never_made_worse(seed):
    sizes = np.random.default_rng(seed).integers(1, 70, (60, 2))
    vectors = Vectors(sizes=sizes, budgets=np.array([100, 100]))
    row_of, num_rows = fit_vectors(vectors, np.argsort(-sizes.sum(axis=1), kind="stable"))
    assert improve(vectors, row_of, bound=0, tries=60, seed=seed).max() < num_rows


def test_patterns_serve_all_documents_even_when_work_runs_out():
    sizes = np.random.default_rng(1).integers(1, 50, (120, 2))
    vectors = Vectors(sizes=sizes, budgets=np.array([100, 100]))
    for budget in (0, 1000, 100_000, 1_000_000):
        row_of, num_rows = pattern_rows(vectors, Work(budget))
        loads = np.zeros((num_rows, 2), dtype=np.int64)
        np.add.at(loads, row_of, sizes)
        assert row_of.min() == 0
        assert (loads > 0).all()
        assert (loads <= 100).all()
