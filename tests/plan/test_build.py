"""From rows to the plan: which rows are dropped, the order of the others, and the counts."""

from __future__ import annotations

import numpy as np
import pytest

from quire.plan.build import build_plan, spans
from quire.plan.fragments import Fragments, whole_documents
from quire.plan.options import PlanOptions
from quire.plan.plan import Plan, fingerprint_of

LENGTHS = np.array([3, 1, 2, 1, 1, 4], dtype=np.uint16)
OFFSETS = np.array([0, 1, 2, 4, 5, 6])


def built(left_out: tuple[Fragments, str] | None = None, **options) -> Plan:
    options = PlanOptions(max_length=6, **options)
    return build_plan(LENGTHS, whole_documents(LENGTHS, options), OFFSETS, options, left_out)


def documents(plan: Plan) -> list[list[int]]:
    return [[fragment.document for fragment in row] for row in plan]


def test_all_rows_are_kept_in_order():
    plan = built()
    assert documents(plan) == [[0], [1], [2, 3], [4], [5]]
    assert plan.fingerprint == fingerprint_of(LENGTHS)
    assert (plan.ledger.tokens.emitted, plan.ledger.tokens.padding) == (12, 5 * 6 - 12)


@pytest.mark.parametrize(
    ("min_length", "prefix", "expected"),
    [
        (2, 0, [[0], [2, 3], [5]]),
        (3, 0, [[0], [2, 3], [5]]),
        (4, 0, [[5]]),
        (5, 0, []),
        (2, 1, [[0], [1], [2, 3], [4], [5]]),
        (3, 1, [[0], [2, 3], [5]]),
        (5, 1, [[2, 3], [5]]),
    ],
)
def test_rows_with_fewer_tokens_are_dropped_and_counted(min_length, prefix, expected):
    plan = built(min_length=min_length, prefix=prefix)
    assert documents(plan) == expected
    kept = [document for row in expected for document in row]
    assert plan.ledger.documents.emitted == len(kept)
    assert plan.ledger.documents.dropped["row_too_short"] == 6 - len(kept)
    tokens = int(LENGTHS[kept].sum()) if kept else 0
    assert plan.ledger.tokens.emitted == tokens
    assert plan.ledger.tokens.dropped["row_too_short"] == 12 - tokens
    assert plan.ledger.tokens.padding == 6 * len(expected) - tokens - prefix * len(kept)


def test_rows_are_shuffled_whole_and_by_the_seed():
    assert documents(built(shuffle=True)) == [[4], [2, 3], [1], [0], [5]]
    assert documents(built(shuffle=True, seed=1)) != documents(built(shuffle=True))
    assert documents(built(shuffle=True, min_length=3)) == [[5], [2, 3], [0]]


@pytest.mark.parametrize("reason", ["unsupervised", "group_too_long"])
@pytest.mark.parametrize("min_length", [1, 2])
def test_fragments_in_no_row_are_counted_under_their_reason(reason, min_length):
    lengths = np.append(LENGTHS, [7, 2])
    options = PlanOptions(max_length=6, min_length=min_length, overlong="fill")
    whole = whole_documents(lengths, options)
    inside, outside = whole.take(np.arange(6)), whole.take(np.array([6, 7]))
    plan = build_plan(lengths, inside, OFFSETS, options, (outside, reason))
    short = {"row_too_short": 2} if min_length == 2 else {}
    assert dict(plan.ledger.documents.dropped) == {**short, reason: 2}
    assert dict(plan.ledger.tokens.dropped) == {**short, reason: 9}


def test_no_rows_make_an_empty_plan_whatever_min_length_is():
    nothing = np.zeros(0, dtype=np.uint16)
    for min_length in (1, 3):
        options = PlanOptions(max_length=6, min_length=min_length)
        plan = build_plan(nothing, whole_documents(nothing, options), np.zeros(1, int), options)
        assert (plan.num_rows, plan.ledger.documents.input) == (0, 0)


def test_spans_may_be_empty_and_come_in_any_order():
    assert spans(np.array([7, 3, 0]), np.array([1, 0, 2])).tolist() == [7, 0, 1]
    assert spans(np.array([], dtype=int), np.array([], dtype=int)).tolist() == []
