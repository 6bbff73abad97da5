"""best_fit, first_fit and greedy give exactly the rows of the textbook."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.plan import quick_strategy_names
from tests.plan.textbook import decreasing_fit, next_fit


def documents(plan: quire.Plan) -> list[list[int]]:
    return [[fragment.document for fragment in row] for row in plan]


def textbook(
    strategy: str, lengths: list[int], max_length: int, cap: int | None
) -> list[list[int]]:
    cap = cap or len(lengths) or 1
    if strategy == "greedy":
        return next_fit(lengths, max_length, cap)
    return decreasing_fit(lengths, max_length, cap, best=strategy == "best_fit")


def test_best_fit_puts_equal_lengths_in_input_order_and_the_short_one_last():
    plan = quire.make_plan([3, 2, 3], 10)
    assert documents(plan) == [[0, 2, 1]]
    assert plan.row_offsets.tolist() == [0, 3]
    assert plan.stops.tolist() == [3, 3, 2]


def test_best_fit_prefers_the_fuller_row_where_first_fit_takes_the_older():
    lengths = [6, 7, 3]
    assert documents(quire.make_plan(lengths, 10, "best_fit")) == [[1, 2], [0]]
    lengths = [6, 5, 5, 4, 3]  # spaces after the first three, of 11: 5, 1 (5 + 5)
    assert documents(quire.make_plan(lengths, 11, "first_fit")) == [[0, 1], [2, 3], [4]]


def test_ties_go_to_the_oldest_row():
    assert documents(quire.make_plan([8, 8, 2, 2], 10, "best_fit")) == [[0, 2], [1, 3]]


def test_greedy_opens_a_row_when_the_next_document_does_not_fit():
    assert documents(quire.make_plan([3, 4, 2, 6, 1], 7, "greedy")) == [[0, 1], [2], [3, 4]]


@pytest.mark.parametrize("strategy", ["best_fit", "first_fit", "greedy"])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_rows_equal_the_textbook(strategy, data):
    max_length = data.draw(st.integers(1, 40))
    lengths = data.draw(st.lists(st.integers(1, max_length), max_size=60))
    cap = data.draw(st.sampled_from([None, 1, 2, 3, 5]))
    plan = quire.make_plan(lengths, max_length, strategy, max_documents_per_row=cap)
    assert documents(plan) == textbook(strategy, lengths, max_length, cap)


@pytest.mark.parametrize("strategy", ["best_fit", "first_fit"])
@pytest.mark.parametrize("max_length", [255, 256, 257, 1000])
def test_rows_equal_the_textbook_on_a_thousand_random_instances(strategy, max_length):
    rng = random.Random(max_length)
    for _ in range(125):
        largest = rng.choice([max_length, max_length // 2, max_length // 3, 9])
        lengths = [rng.randint(1, largest) for _ in range(rng.randint(1, 120))]
        cap = rng.choice([None, None, 2, 4])
        plan = quire.make_plan(lengths, max_length, strategy, max_documents_per_row=cap)
        assert documents(plan) == textbook(strategy, lengths, max_length, cap)


@pytest.mark.parametrize("strategy", ["best_fit", "first_fit"])
def test_lengths_over_16_bits_are_sorted_correctly(strategy):
    rng = random.Random(5)
    lengths = [rng.choice([rng.randint(1, 200_000), 65_535, 65_536, 65_537]) for _ in range(150)]
    plan = quire.make_plan(lengths, 200_000, strategy)
    assert documents(plan) == textbook(strategy, lengths, 200_000, None)


@pytest.mark.parametrize("max_length", [8191, 8192, 8193, 16385])
def test_row_lengths_around_powers_of_two_pack_equally_well(max_length):
    plan = quire.make_plan([max_length // 4] * 400, max_length)
    assert plan.num_rows == 100


@pytest.mark.parametrize("strategy", quick_strategy_names())
@pytest.mark.parametrize("max_length", [2**50, 2**62, 2**63 - 1, 2**70])
def test_a_row_beyond_64_bits_holds_everything(strategy, max_length):
    plan = quire.make_plan([5, 6, 2**40], max_length, strategy)
    assert plan.row_lengths.tolist() == [2**40 + 11]
    capped = quire.make_plan([5, 6, 7], max_length, strategy, max_documents_per_row=2)
    assert capped.num_rows == 2


@pytest.mark.parametrize("strategy", quick_strategy_names())
@pytest.mark.parametrize("options", [{"prefix": 5}, {"align": 64}])
def test_prefix_and_alignment_do_not_overflow_32_bits(strategy, options):
    plan = quire.make_plan([2**31 - 1, 5], 2**32, strategy, **options)
    prefix = options.get("prefix", 0)
    assert plan.row_lengths.tolist() == [2**31 + 4 + 2 * prefix]
