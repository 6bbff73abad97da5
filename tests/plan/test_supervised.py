"""Unsupervised fragments are in no row, and are counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.plan import PlanOptions, plan_documents, quick_strategy_names
from quire.plan.fragments import Fragments


def trained_at(positions: dict[int, set[int]]):
    """A fragment is supervised if it holds a trained position of its document."""

    def supervised(fragments: Fragments) -> np.ndarray:
        spans = zip(fragments.documents, fragments.starts, fragments.stops, strict=True)
        return np.array(
            [any(a <= p < b for p in positions.get(int(d), ())) for d, a, b in spans], dtype=bool
        )

    return supervised


def test_an_unsupervised_fragment_is_dropped_and_its_document_stays():
    supervised = trained_at({0: {9}, 1: {0}})
    plan = plan_documents([12, 2], PlanOptions(max_length=4), supervised)
    assert sorted(tuple(f) for row in plan for f in row) == [(0, 8, 12), (1, 0, 2)]
    assert plan.ledger.tokens.dropped["unsupervised"] == 8
    assert plan.ledger.documents.emitted == 2


def test_an_unsupervised_document_is_dropped_as_a_whole():
    plan = plan_documents([3, 2], PlanOptions(max_length=4), trained_at({1: {0}}))
    assert plan.ledger.documents.dropped["unsupervised"] == 1
    assert plan.ledger.tokens.dropped["unsupervised"] == 3


@pytest.mark.parametrize("strategy", quick_strategy_names())
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_every_row_is_supervised_and_every_token_is_counted(strategy, data):
    max_length = data.draw(st.integers(2, 12))
    lengths = data.draw(st.lists(st.integers(0, 30), max_size=10))
    trained = {
        document: set(data.draw(st.lists(st.integers(0, max(0, length - 1)), max_size=3)))
        for document, length in enumerate(lengths)
    }
    options = PlanOptions(
        max_length=max_length,
        strategy=strategy,
        overlong=data.draw(st.sampled_from(["split", "fill", "truncate"])),
        stride=data.draw(st.integers(0, max_length - 1)),
    )
    plan = plan_documents(lengths, options, trained_at(trained))
    for row in plan:
        for document, start, stop in row:
            assert any(start <= position < stop for position in trained[document])
    plan.ledger.check()
    taught = {f.document for row in plan for f in row}
    assert plan.ledger.documents.emitted == len(taught)
