"""Groups of documents in a plan: whole, together, in the order of their first members."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import InvalidOption
from quire.plan import PlanOptions, make_plan
from quire.plan.groups import plan_groups


def documents(plan):
    return [[fragment.document for fragment in row] for row in plan]


def test_members_stand_together_in_their_order():
    plan = plan_groups([3, 3, 4, 4], np.array([0, 1, 0, 1]), PlanOptions(capacity=8))
    assert documents(plan) == [[0, 2], [1, 3]]


def test_groups_come_in_the_order_of_their_first_members_whatever_their_numbers():
    options = PlanOptions(capacity=2, strategy="greedy")
    plan = plan_groups([1, 1, 1, 1], np.array([9, 2, 9, 2]), options)
    assert documents(plan) == [[0, 2], [1, 3]]


def test_wrapped_does_not_cut_a_group():
    options = PlanOptions(capacity=5, strategy="wrapped")
    plan = plan_groups([2, 2, 2, 2], np.array([0, 0, 1, 1]), options)
    assert documents(plan) == [[0, 1], [2, 3]]
    assert all(fragment.start == 0 and fragment.stop == 2 for row in plan for fragment in row)


@pytest.mark.parametrize("strategy", ["best_fit", "first_fit", "greedy", "tight"])
@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 12), max_size=12),
    prefix=st.integers(0, 1),
    align=st.sampled_from([1, 2]),
)
def test_groups_of_one_are_planned_as_documents_that_may_not_be_cut(
    strategy, lengths, prefix, align
):
    terms = {"capacity": 8, "strategy": strategy, "prefix": prefix, "align": align}
    grouped = plan_groups(lengths, np.arange(len(lengths)), PlanOptions(**terms))
    alone = make_plan(lengths, **terms, overlong="drop")
    assert documents(grouped) == documents(alone)
    assert (
        grouped.ledger.tokens.dropped["group_too_long"] == alone.ledger.tokens.dropped["too_long"]
    )


def test_the_numbers_must_be_one_for_each_document():
    with pytest.raises(InvalidOption, match="there are 2 group numbers for 3 documents"):
        plan_groups([1, 2, 3], np.array([0, 0]), PlanOptions(capacity=8))
    with pytest.raises(InvalidOption, match="max_documents_per_row=2 cannot be combined"):
        plan_groups([1], np.array([0]), PlanOptions(capacity=8, max_documents_per_row=2))
