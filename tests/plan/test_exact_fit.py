"""`exact_fit`: rows at the bound where the bound can be reached, best-fit's elsewhere."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire import Plan, lower_bound, make_plan
from quire.plan.exact import evenly, scarcest
from quire.plan.exact.dealt import SizedRows, deal
from quire.plan.exact.evenly import even_rows
from quire.plan.exact.problem import Problem, RowKinds
from quire.plan.exact.scarcest import scarcest_first
from quire.plan.exact.shuffled import shuffled_rows
from quire.plan.histogram import rows_from_runs
from quire.plan.strategies import exact_fit
from quire.plan.strategies.best_fit import best_fit_few

ROW = 4096


def drawn(kind: str, count: int = 20_000) -> np.ndarray:
    draw = np.random.default_rng(1)
    lengths = {
        "chat": lambda: draw.lognormal(7.0, 0.42, count),
        "three to a row": lambda: draw.lognormal(7.2, 0.3, count),
        "a fifth to three fifths": lambda: draw.uniform(ROW / 5, 0.6 * ROW, count),
        "a sixth to a half": lambda: draw.uniform(ROW // 6 + 1, ROW / 2, count),
        "web": lambda: draw.lognormal(6.345, 1.092, count),
        "twelve to a row": lambda: draw.integers(ROW // 16, ROW // 9, count),
    }[kind]()
    return np.clip(lengths.astype(np.int64), 1, ROW)


def fewest_rows(sizes: list[int], row: int, cap: int) -> int:
    """The optimum, by trying every row for every size."""
    best = len(sizes)
    open_rows: list[tuple[int, int]] = []

    def place(number: int) -> None:
        nonlocal best
        if len(open_rows) >= best:
            return
        if number == len(sizes):
            best = len(open_rows)
            return
        for place_in in {open_rows.index(one) for one in open_rows}:
            used, held = open_rows[place_in]
            if used + sizes[number] <= row and held < cap:
                open_rows[place_in] = (used + sizes[number], held + 1)
                place(number + 1)
                open_rows[place_in] = (used, held)
        open_rows.append((sizes[number], 1))
        place(number + 1)
        open_rows.pop()

    sizes = sorted(sizes, reverse=True)
    place(0)
    return best


def rows_of(lengths: list[int], max_length: int, **options: object) -> list[list[int]]:
    plan = make_plan(lengths, max_length, "exact_fit", **options)
    return [[lengths[part.document] for part in row] for row in plan]


def rows_from_kinds(kinds: RowKinds, counts: list[int]) -> list[list[int]]:
    """The sizes in every row, where the rows hold so many documents of each size."""
    decreasing = np.repeat(np.arange(len(counts)), counts)[::-1]
    rows = rows_from_runs(np.arange(len(decreasing)), kinds.runs(), kinds.num_rows)
    sizes = decreasing[rows.fragments].tolist()
    return [sizes[a:b] for a, b in pairwise(rows.offsets.tolist())]


def test_rows_are_filled_exactly_where_best_fit_needs_one_more() -> None:
    assert make_plan([5, 5, 4, 4, 3, 3], 12, "best_fit").num_rows == 3
    assert rows_of([5, 5, 4, 4, 3, 3], 12) == [[5, 4, 3], [5, 4, 3]]


def test_rows_of_best_fit_are_kept_where_no_plan_needs_fewer() -> None:
    lengths = drawn("web", 1000)
    ours, best_fit = (make_plan(lengths, ROW, name) for name in ("exact_fit", "best_fit"))
    assert best_fit.num_rows == best_fit.lower_bound
    assert np.array_equal(ours.documents, best_fit.documents)
    assert np.array_equal(ours.row_offsets, best_fit.row_offsets)


@pytest.mark.parametrize(
    ("kind", "over"),
    [
        ("chat", 1),
        ("three to a row", 12),
        ("a fifth to three fifths", 40),
        ("a sixth to a half", 20),
        ("twelve to a row", 0),
    ],
)
def test_rows_are_at_the_bound_where_few_documents_fill_one(kind: str, over: int) -> None:
    lengths = drawn(kind)
    plan = make_plan(lengths, ROW, "exact_fit")
    assert plan.num_rows <= plan.lower_bound + over
    assert plan.num_rows < make_plan(lengths, ROW, "best_fit").num_rows


@pytest.mark.parametrize("kind", ["chat", "web", "three to a row"])
def test_rows_of_small_plans_mix_lengths_nearly_as_random_rows_do(kind: str) -> None:
    lengths = drawn(kind, 10_000)
    random = make_plan(lengths, ROW, "greedy")
    assert spread_inside_rows(make_plan(lengths, ROW, "exact_fit"), lengths) > 0.9 * (
        spread_inside_rows(random, lengths)
    )
    assert spread_inside_rows(make_plan(lengths, ROW, "best_fit"), lengths) < 0.8 * (
        spread_inside_rows(random, lengths)
    )


def spread_inside_rows(plan: Plan, lengths: np.ndarray) -> float:
    """The deviation of the logarithms of lengths from the mean of their row."""
    logs = np.log(lengths[plan.documents])
    counts = np.diff(plan.row_offsets)
    means = np.add.reduceat(logs, plan.row_offsets[:-1]) / counts
    return float(np.std(logs - np.repeat(means, counts)))


def test_the_optimum_is_found_for_nearly_all_small_plans_and_no_bound_is_above_it() -> None:
    draw = np.random.default_rng(3)
    worse = 0
    for _ in range(300):
        row, count = int(draw.integers(5, 60)), int(draw.integers(1, 11))
        lengths = draw.integers(draw.integers(1, max(2, row // 3)), row + 1, count)
        cap = int(draw.integers(1, 6)) if draw.random() < 0.3 else None
        optimum = fewest_rows(lengths.tolist(), row, cap or count)
        rows = make_plan(lengths, row, "exact_fit", max_documents_per_row=cap).num_rows
        assert lower_bound(lengths, row, max_documents_per_row=cap) <= optimum <= rows
        worse += rows > optimum
    assert worse <= 3


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=80),
    cap=st.integers(1, 5) | st.none(),
    align=st.integers(1, 4),
    prefix=st.integers(0, 2),
    fill=st.booleans(),
)
def test_no_option_makes_more_rows_than_best_fit(
    lengths: list[int], cap: int | None, align: int, prefix: int, fill: bool
) -> None:
    options = {"max_documents_per_row": cap, "align": align, "prefix": prefix}
    ours, best_fit = (
        make_plan(lengths, 64, name, overlong="split", **options)
        for name in ("exact_fit", "best_fit")
    )
    assert ours.num_rows <= best_fit.num_rows
    if fill:
        assert make_plan(lengths, 64, "exact_fit", overlong="fill", **options).num_rows


@pytest.mark.parametrize("search", ["scarcest", "shuffled", "evenly"])
@pytest.mark.parametrize("kind", ["chat", "a sixth to a half", "twelve to a row"])
@pytest.mark.parametrize("cap", [3, 1000])
def test_every_search_places_every_document_once_in_rows_that_hold_them(
    search: str, kind: str, cap: int
) -> None:
    sizes, counts = np.unique(drawn(kind, 5000), return_counts=True)
    problem = Problem.of(sizes.tolist(), counts.tolist(), ROW, cap)
    kinds, left = RowKinds(), problem
    if search != "scarcest":
        found = {"shuffled": shuffled_rows, "evenly": even_rows}[search](problem)
        if found is None:
            return
        kinds, left = found
    kinds = scarcest_first(left, kinds)
    rows = rows_from_kinds(kinds, problem.counts)
    assert all(sum(row) <= problem.space and 0 < len(row) <= cap for row in rows)
    placed = Counter(size for row in rows for size in row)
    assert placed == {size: count for size, count in enumerate(problem.counts) if count}


@pytest.mark.parametrize("kind", ["chat", "web", "a sixth to a half", "twelve to a row"])
@pytest.mark.parametrize("cap", [3, 4, 1000])
@pytest.mark.parametrize("count", [1500, 5000, 40_000])
def test_dealt_rows_are_full_and_hold_each_document_once(kind: str, cap: int, count: int) -> None:
    lengths = drawn(kind, count)
    counts = np.bincount(lengths, minlength=ROW + 1)
    dealt, left = deal(counts, ROW, cap)
    full = dealt.num_rows
    dealt.add([[size] for size in np.arange(ROW + 1).repeat(left).tolist()])
    rows = dealt.of(lengths)
    assert np.array_equal(np.sort(rows.fragments), np.arange(count))
    sums = np.add.reduceat(lengths[rows.fragments], rows.offsets[:-1])
    assert (sums[:full] == ROW).all()
    assert rows.counts.min() > 0
    assert rows.counts.max() <= cap
    assert full or cap < 1000


def test_rows_of_sizes_take_equal_documents_in_their_order() -> None:
    rows = SizedRows()
    rows.add_table(np.array([[5, 4], [3, 0]]), 2)
    rows.add([[3], [4, 4]])
    placed = rows.of(np.array([4, 5, 3, 4, 4, 5, 3, 3, 4]))
    assert np.split(placed.fragments, placed.offsets[1:-1])[0].tolist() == [1, 2]
    assert placed.fragments.tolist() == [1, 2, 5, 6, 0, 3, 7, 4, 8]
    assert placed.offsets.tolist() == [0, 2, 4, 5, 6, 7, 9]


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_small_plans_hold_to_a_cap(cap: int) -> None:
    draw = np.random.default_rng(0)
    lengths = draw.integers(ROW // 5, 5 * ROW // 6, 3000)  # about two to a row
    plan = make_plan(lengths, ROW, max_documents_per_row=cap)
    assert np.diff(plan.row_offsets).max() <= cap


@pytest.mark.parametrize("unit", [1, 16, 1000])
def test_small_plans_are_dealt_in_the_unit_of_their_lengths(unit: int) -> None:
    lengths = drawn("chat", 5000) // 16 * unit
    plan = make_plan(lengths, ROW // 16 * unit)
    assert plan.num_rows <= plan.lower_bound + 2
    assert spread_inside_rows(plan, lengths) > 0.3  # best-fit's is 0.2


def test_documents_left_after_dealing_are_searched_again_if_best_fit_wastes_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def worse(sizes: list[int], *options: int) -> list[list[int]]:
        rows = best_fit_few(sizes, *options)
        longest = max(rows, key=len)
        return [*rows, [longest.pop()], [longest.pop()]]

    lengths, searched = drawn("chat", 10_000), []
    monkeypatch.setattr(exact_fit, "best_fit_few", worse)
    monkeypatch.setattr(exact_fit, "_tolerated", lambda bound: 1)
    monkeypatch.setattr(exact_fit, "best_fit_runs", lambda *_: pytest.fail("was not dealt"))

    def counted(problem: Problem) -> RowKinds:
        searched.append(problem.num_documents)
        return scarcest_first(problem)

    monkeypatch.setattr(exact_fit, "scarcest_first", counted)
    plan = make_plan(lengths, ROW)
    assert plan.num_rows <= plan.lower_bound + 1
    assert 100 < searched[0] < 1000


def test_very_long_rows_are_searched_in_coarser_units() -> None:
    unit = 1_000_003
    lengths = drawn("three to a row", 1000) * unit - 7
    plan = make_plan(lengths, ROW * unit, "exact_fit")
    assert plan.num_rows <= 1.03 * plan.lower_bound
    assert plan.num_rows < make_plan(lengths, ROW * unit, "best_fit").num_rows


def test_a_document_as_long_as_a_row_that_the_unit_does_not_divide_is_alone() -> None:
    row = (1 << 17) + 1
    lengths = [row, row - 1, 1, row // 2, row // 3, row // 3, row // 6]
    assert sorted(map(sum, rows_of(lengths, row)))[-1] <= row


def test_the_same_lengths_give_the_same_plan() -> None:
    lengths = drawn("three to a row", 5000)
    assert make_plan(lengths, ROW, "exact_fit") == make_plan(lengths, ROW, "exact_fit")


def without_exact_rows() -> np.ndarray:
    """Multiples of three, for rows that are none; one document keeps three from being the unit."""
    lengths = np.random.default_rng(0).integers(ROW // 18 + 1, ROW // 6, 5000) * 3
    lengths[0] += 2  # 4,096 is 1 more than a multiple
    return lengths


def test_the_reading_for_rows_that_are_not_exact_is_limited_in_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads, chosen_sizes = [], scarcest.chosen_sizes

    def counted(read: list[int], before: list[int], gap: int) -> list[int]:
        reads.append(len(read))
        return chosen_sizes(read, before, gap)

    monkeypatch.setattr(scarcest, "chosen_sizes", counted)
    monkeypatch.setattr(scarcest, "_MOST_READ", 2000, raising=False)
    sizes, counts = np.unique(without_exact_rows(), return_counts=True)
    problem = Problem.of(sizes.tolist(), counts.tolist(), ROW, 9)
    rows = rows_from_kinds(scarcest_first(problem), problem.counts)
    assert sum(map(len, rows)) == 5000
    assert max(reads) > 60
    assert sum(reads) < 2000 + 600 + 60 * len(reads)


def test_the_search_for_even_rows_ends_when_it_has_ordered_enough_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evenly, "_MOST_ORDERED", 2000, raising=False)
    sizes, counts = np.unique(drawn("three to a row", 5000), return_counts=True)
    problem = Problem.of(sizes.tolist(), counts.tolist(), ROW, 9)
    kinds, left = even_rows(problem)
    assert 1000 < left.num_documents < 4900
    placed = [all_of - of for all_of, of in zip(problem.counts, left.counts, strict=True)]
    assert {sum(row) for row in rows_from_kinds(kinds, placed)} == {problem.space}


def test_a_search_without_exact_rows_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(problem: Problem, kinds: RowKinds | None = None) -> RowKinds:
        calls.append(problem)
        return scarcest_first(problem, kinds)

    monkeypatch.setattr(exact_fit, "scarcest_first", counted)
    make_plan(without_exact_rows(), ROW, "exact_fit")
    assert len(calls) == 1
