"""Strategies can be registered, and what they return is checked."""

from __future__ import annotations

import numpy as np
import pytest

import quire
from quire.errors import InvalidOption, StrategyError
from quire.plan import keeps_order, strategy_names


def test_a_registered_strategy_works_under_every_policy(registered):
    def two_by_two(sizes, max_length, options):
        return [i // 2 * 7 for i in range(len(sizes))]

    registered("pairs", two_by_two)
    assert "pairs" in strategy_names()
    plan = quire.make_plan([3, 3, 2, 2, 1], 8, "pairs")
    assert [[f.document for f in row] for row in plan] == [[0, 1], [2, 3], [4]]
    filled = quire.make_plan([3, 3, 2, 2, 1], 8, "pairs", overlong="fill")
    assert filled.num_rows == 2


MIND = "respect `max_length` and `options.max_documents_per_row`"


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([0, 0, 0], f"put 9 tokens into a row that holds 8; {MIND}"),
        ([1, 1, 1], f"put 9 tokens into a row that holds 8; {MIND}"),
        (
            [0, 1],
            "returned int64 of shape (2,) but must return one integer row "
            "number for each of 3 fragments",
        ),
        (
            [[0, 1, 2]],
            "returned int64 of shape (1, 3) but must return one integer row "
            "number for each of 3 fragments",
        ),
        (
            [0.0, 1.0, 2.0],
            "returned float64 of shape (3,) but must return one integer row "
            "number for each of 3 fragments",
        ),
    ],
)
def test_a_registered_strategy_that_breaks_a_rule_is_named(registered, numbers, message):
    registered("broken", lambda sizes, max_length, options: numbers)
    with pytest.raises(StrategyError) as caught:
        quire.make_plan([3, 3, 3], 8, "broken")
    assert str(caught.value) == f"strategy 'broken' {message}"


def test_a_registered_strategy_whose_result_is_not_a_flat_list_is_named_with_the_reason(registered):
    registered("broken", lambda sizes, max_length, options: [[0], [1, 2]])
    with pytest.raises(StrategyError) as caught:
        quire.make_plan([3, 3, 3], 8, "broken")
    reason = caught.value.__cause__
    assert isinstance(reason, ValueError)
    assert str(caught.value) == f"strategy 'broken' did not return a flat list: {reason}"


def test_a_registered_strategy_may_not_exceed_the_cap(registered):
    registered("heap", lambda sizes, max_length, options: [5, 9, 9, 9])
    with pytest.raises(StrategyError) as caught:
        quire.make_plan([2, 1, 1, 1], 8, "heap", max_documents_per_row=2)
    message = f"strategy 'heap' put 3 fragments into a row that holds 2; {MIND}"
    assert str(caught.value) == message
    assert quire.make_plan([2, 1, 1, 1], 8, "heap", max_documents_per_row=3).num_rows == 2


def test_the_fullest_invalid_row_of_a_registered_strategy_is_named(registered):
    registered("broken", lambda sizes, max_length, options: [0, 0, 1, 1, 2])
    with pytest.raises(StrategyError, match=r"^strategy 'broken' put 13 tokens into a row"):
        quire.make_plan([5, 4, 6, 7, 3], 8, "broken")


def test_a_registered_strategy_receives_sizes_the_row_size_and_the_options(registered):
    seen = []
    registered("curious", lambda *given: seen.append(given) or [0, 1])
    plan = quire.make_plan([3, 6], 19, "curious", prefix=1, align=4)
    sizes, max_length, options = seen[0]
    assert (sizes.tolist(), max_length, options) == ([4, 8], 16, plan.options)


def test_sums_of_16_bit_sizes_do_not_overflow(registered):
    registered("heap", lambda sizes, max_length, options: [0, 0])
    with pytest.raises(StrategyError, match=r"put 80000 tokens into a row that holds 50000"):
        quire.make_plan([40_000, 40_000], 50_000, "heap")


def test_row_numbers_may_be_very_large(registered):
    registered("far", lambda sizes, max_length, options: [2**60 + 1, 2**60])
    assert quire.make_plan([5, 5], 8, "far").documents.tolist() == [1, 0]


def test_unsigned_row_numbers_are_accepted(registered):
    registered("unsigned", lambda sizes, max_length, options: np.array([1, 0, 1], np.uint8))
    plan = quire.make_plan([3, 2, 4], 8, "unsigned")
    assert [[f.document for f in row] for row in plan] == [[1], [0, 2]]


def test_a_registered_strategy_is_not_called_without_fragments(registered):
    asked = []
    registered("alone", lambda *given: asked.append(given))
    for lengths in ([], [0, 0]):
        assert quire.make_plan(lengths, 8, "alone").num_rows == 0
    assert quire.make_plan([9], 8, "alone", overlong="drop").num_rows == 0
    assert not asked


def test_a_registered_strategy_may_be_replaced(registered):
    registered("mine", lambda sizes, max_length, options: [0] * len(sizes))
    registered("mine", lambda sizes, max_length, options: list(range(len(sizes))))
    assert quire.make_plan([3, 3], 8, "mine").num_rows == 2


def test_strategies_that_keep_the_order_are_known(registered):
    registered("mine", len)
    ordered = {name for name in strategy_names() if keeps_order(name)}
    assert {"greedy", "wrapped"} <= ordered
    assert not ordered & {"best_fit", "first_fit", "tight", "mine"}
    with pytest.raises(InvalidOption, match=r"^unknown strategy 'gredy'; did you mean 'greedy'\?"):
        keeps_order("gredy")


def test_a_registered_strategy_may_sort_its_sizes_in_place(registered):
    def sorting(sizes, max_length, options):
        sizes.sort()
        return list(range(len(sizes)))

    registered("sorting", sorting)
    plan = quire.make_plan([5, 3, 4], 8, "sorting")
    assert plan.stops.tolist() == [5, 3, 4]


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [
        (["mine"], len, "a strategy's name is a non-empty string, not ['mine']"),
        ("", len, "a strategy's name is a non-empty string, not ''"),
        ("mine", 3, "strategy 'mine' is 3 but must be a function"),
        (
            "best_fit",
            len,
            "strategy 'best_fit' is built in; register yours under another name",
        ),
    ],
)
def test_only_a_function_with_a_name_can_be_registered(registered, name, function, message):
    with pytest.raises(InvalidOption) as caught:
        registered(name, function)
    assert str(caught.value) == message
