"""Groups of documents in a plan: complete, together, ordered by their first members."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import InvalidOption, OversizedDocument
from quire.plan import PlanOptions, make_plan
from quire.plan.groups import plan_groups
from quire.plan.strategies import BUILT_IN, find_strategy


def documents(plan):
    return [[fragment.document for fragment in row] for row in plan]


def test_members_of_a_group_share_a_row_in_their_order():
    plan = plan_groups([3, 3, 4, 4], np.array([0, 1, 0, 1]), PlanOptions(max_length=8))
    assert documents(plan) == [[0, 2], [1, 3]]


def test_groups_are_ordered_by_their_first_members_whatever_their_numbers():
    options = PlanOptions(max_length=2, strategy="greedy")
    plan = plan_groups([1, 1, 1, 1], np.array([9, 2, 9, 2]), options)
    assert documents(plan) == [[0, 2], [1, 3]]


def test_wrapped_does_not_cut_a_group():
    options = PlanOptions(max_length=5, strategy="wrapped")
    plan = plan_groups([2, 2, 2, 2], np.array([0, 0, 1, 1]), options)
    assert documents(plan) == [[0, 1], [2, 3]]
    assert all(fragment.start == 0 and fragment.stop == 2 for row in plan for fragment in row)


@pytest.mark.parametrize("strategy", [name for name in BUILT_IN if not find_strategy(name).wraps])
@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 12), max_size=12),
    prefix=st.integers(0, 1),
    align=st.sampled_from([1, 2]),
)
def test_groups_of_one_are_planned_as_documents_that_may_not_be_cut(
    strategy, lengths, prefix, align
):
    options = {"max_length": 8, "strategy": strategy, "prefix": prefix, "align": align}
    grouped = plan_groups(lengths, np.arange(len(lengths)), PlanOptions(**options))
    alone = make_plan(lengths, **options, overlong="drop")
    assert documents(grouped) == documents(alone)
    assert (
        grouped.ledger.tokens.dropped["group_too_long"] == alone.ledger.tokens.dropped["too_long"]
    )


def test_the_members_of_large_groups_keep_their_order():
    plan = plan_groups([1] * 60, np.arange(60) % 3, PlanOptions(max_length=20, strategy="greedy"))
    assert documents(plan) == [list(range(first, 60, 3)) for first in range(3)]


@pytest.mark.parametrize("overlong", ["split", "drop", "truncate", "fill"])
def test_a_group_longer_than_a_row_is_dropped_as_a_whole_and_counted_once(overlong):
    options = PlanOptions(max_length=8, overlong=overlong)
    plan = plan_groups([9, 2, 3, 4, 0], np.array([0, 1, 2, 0, 1]), options)
    assert documents(plan) == [[2, 1]]
    assert plan.ledger.to_dict() == {
        "documents": {
            "input": 5,
            "emitted": 2,
            "pending": 0,
            "dropped": {"empty": 1, "group_too_long": 2},
        },
        "tokens": {
            "input": 18,
            "emitted": 5,
            "pending": 0,
            "dropped": {"group_too_long": 13},
            "overlap": 0,
            "special": 0,
            "padding": 3,
        },
    }


def test_a_group_that_fills_a_row_is_accepted_and_one_token_more_is_an_error():
    options = PlanOptions(max_length=8, overlong="error", prefix=1)
    groups = np.array([4, 4, 7, 9, 7, 9])
    assert documents(plan_groups([2, 2, 3, 3, 3, 3], groups, options)) == [[2, 4], [3, 5], [0, 1]]
    with pytest.raises(OversizedDocument) as caught:
        plan_groups([2, 2, 3, 3, 3, 4], groups, options)
    assert str(caught.value) == (
        "the group of document 3 takes 9 tokens but a row holds 8; "
        "drop such groups (overlong='drop') or raise max_length"
    )


@pytest.mark.parametrize(
    ("groups", "cap", "message"),
    [
        ([0, 0], None, "there are 2 group numbers for 3 documents"),
        (
            [0, 0, 0],
            2,
            "max_documents_per_row=2 cannot be combined with groups, which share a row whatever "
            "their number; leave one of the two out",
        ),
    ],
)
def test_impossible_groups_are_rejected_with_the_reason(groups, cap, message):
    options = PlanOptions(max_length=8, max_documents_per_row=cap)
    with pytest.raises(InvalidOption) as caught:
        plan_groups([1, 2, 3], np.array(groups), options)
    assert str(caught.value) == message
