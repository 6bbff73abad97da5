"""What happens to documents longer than a row, and how gaps are closed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.plan import PlanOptions, plan_documents, quick_strategy_names
from quire.plan.fill import _wrap_plain, pour, wrap
from quire.plan.fragments import whole_documents
from quire.plan.strategies import BUILT_IN


def spans(plan: quire.Plan, document: int = 0) -> list[tuple[int, int]]:
    return sorted((f.start, f.stop) for row in plan for f in row if f.document == document)


@pytest.mark.parametrize(
    ("length", "options", "expected"),
    [
        (12, {"max_length": 5}, [(0, 5), (5, 10), (10, 12)]),
        (8, {"max_length": 5, "stride": 2}, [(0, 5), (3, 8)]),
        (9, {"max_length": 5, "stride": 2}, [(0, 5), (3, 8), (6, 9)]),
        (10, {"max_length": 5}, [(0, 5), (5, 10)]),
        (11, {"max_length": 5, "prefix": 1}, [(0, 4), (4, 8), (8, 11)]),
        (11, {"max_length": 10, "align": 4}, [(0, 8), (8, 11)]),
        (11, {"max_length": 5, "overlong": "truncate"}, [(0, 5)]),
        (11, {"max_length": 5, "overlong": "truncate_left"}, [(6, 11)]),
        (11, {"max_length": 5, "overlong": "drop"}, []),
        (3, {"max_length": 1}, [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_the_overlong_policy_is_applied_to_a_long_document(length, options, expected):
    assert spans(quire.make_plan([length], **options)) == expected


@pytest.mark.parametrize(
    ("length", "stride", "expected"),
    [
        (9, 0, [(0, 7), (7, 9)]),
        (17, 0, [(0, 8), (8, 15), (15, 17)]),
        (16, 0, [(0, 8), (8, 16)]),
        (9, 3, [(0, 7), (4, 9)]),
        (14, 3, [(0, 8), (5, 12), (9, 14)]),
    ],
)
def test_the_last_fragment_has_at_least_min_tail_tokens(length, stride, expected):
    plan = plan_documents([length], PlanOptions(max_length=8, min_tail=2, stride=stride))
    assert spans(plan) == expected


def test_wrapped_fills_rows_completely_in_order():
    plan = quire.make_plan([3, 4, 5, 6], 8, "wrapped")
    assert [[tuple(f) for f in row] for row in plan] == [
        [(0, 0, 3), (1, 0, 4), (2, 0, 1)],
        [(2, 1, 5), (3, 0, 4)],
        [(3, 4, 6)],
    ]


def test_wrapped_repeats_the_overlap_and_reserves_the_prefix():
    plan = quire.make_plan([6, 6], 8, "wrapped", stride=2, prefix=1)
    assert [[tuple(f) for f in row] for row in plan] == [[(0, 0, 6)], [(1, 0, 6)]]
    plan = quire.make_plan([4, 6], 8, "wrapped", stride=2, prefix=1)
    assert [[tuple(f) for f in row] for row in plan] == [[(0, 0, 4), (1, 0, 2)], [(1, 0, 6)]]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 20))
def test_wrapping_by_arithmetic_equals_pouring(lengths, max_length):
    whole = whole_documents(np.array(lengths), PlanOptions(max_length=max_length))
    options = PlanOptions(max_length=max_length)
    fast, offsets = _wrap_plain(whole, max_length)
    rows = iter(lambda: (max_length, max_length), None)
    slow, row = pour(whole, np.zeros(len(whole), int), rows, options, 1)
    assert np.array_equal(np.diff(offsets), np.bincount(row))
    for name in ("documents", "starts", "stops"):
        assert np.array_equal(getattr(fast, name), getattr(slow, name))
    assert np.array_equal(wrap(whole, options)[1], offsets)


@pytest.mark.parametrize("strategy", quick_strategy_names())
@pytest.mark.parametrize("low", [1, 1365, 2049])
def test_fill_reaches_99_9_percent_where_best_fit_does_not(strategy, low):
    lengths = np.random.default_rng(low).integers(low, 4097 if low != 1365 else 2049, 20_000)
    filled = quire.make_plan(lengths, 4096, strategy, overlong="fill")
    assert filled.utilization >= 0.999
    assert filled.ledger.tokens.emitted == lengths.sum()


def test_fill_cuts_few_documents():
    lengths = np.random.default_rng(0).integers(1, 4097, 100_000)
    plain = quire.make_plan(lengths, 4096)
    filled = quire.make_plan(lengths, 4096, overlong="fill")
    assert plain.utilization < 0.999 <= filled.utilization
    assert filled.num_fragments - len(lengths) < 0.007 * len(lengths)


def test_fill_cuts_nothing_where_nothing_is_gained():
    lengths = [4] * 100
    assert quire.make_plan(lengths, 8, overlong="fill").num_fragments == 100
    filled = quire.make_plan([5, 5], 8, overlong="fill")
    assert filled.num_fragments == filled.num_rows == 2


def test_fill_closes_a_gap_with_part_of_a_document():
    plan = quire.make_plan([5, 5, 5], 8, overlong="fill")
    assert plan.num_rows == 2
    assert sorted(plan.row_lengths) == [7, 8]


def test_fill_cuts_no_piece_shorter_than_min_fragment():
    lengths = np.random.default_rng(1).integers(40, 90, 400)
    for strategy in ("best_fit", "wrapped"):
        plan = quire.make_plan(lengths, 128, strategy, overlong="fill", min_fragment=16)
        assert (plan.stops - plan.starts).min() >= 16
        assert plan.num_rows < quire.make_plan(lengths, 128).num_rows


@pytest.mark.parametrize("strategy", BUILT_IN)
@pytest.mark.parametrize("length", [17, 20, 33, 47, 100])
def test_fill_leaves_no_short_tail_of_a_long_document(strategy, length):
    plan = quire.make_plan([length, 3], 16, strategy, overlong="fill", min_fragment=6)
    pieces = plan.stops - plan.starts
    assert pieces[plan.documents == 0].min() >= 6
    assert plan.ledger.tokens.emitted == length + 3


def test_fill_that_cannot_save_a_row_leaves_the_plan_unchanged():
    plain = quire.make_plan([5] * 9, 8, max_documents_per_row=1)
    filled = quire.make_plan([5] * 9, 8, max_documents_per_row=1, overlong="fill")
    assert list(filled) == list(plain)


def test_a_ten_million_token_document_is_split_by_arithmetic():
    plan = quire.make_plan([10_000_000, 7], 4096)
    assert plan.num_rows == -(-10_000_007 // 4096)
    assert plan.ledger.tokens.emitted == 10_000_007


@pytest.mark.parametrize("max_length", [7, 8, 9, 4095, 4096, 4097])
@pytest.mark.parametrize("multiple", [1, 2, 5])
def test_lengths_at_the_edge_of_a_row_split_exactly(max_length, multiple):
    for length in (multiple * max_length - 1, multiple * max_length, multiple * max_length + 1):
        plan = quire.make_plan([length], max_length)
        assert plan.num_rows == plan.num_fragments == -(-length // max_length)
