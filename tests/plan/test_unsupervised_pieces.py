"""Cuts that close gaps: documents are cut once, and a piece without a trained label is dropped."""

from __future__ import annotations

import numpy as np
import pytest

import quire
from quire.plan import PlanOptions, plan_documents
from quire.plan.fragments import Fragments


def trained_at(*positions: int):
    """Each document has one trained position; -1 means none."""

    def supervised(fragments: Fragments) -> np.ndarray:
        trained = np.array(positions)[fragments.documents]
        return (fragments.starts <= trained) & (trained < fragments.stops)

    return supervised


def rows(plan: quire.Plan) -> list[list[tuple[int, int, int]]]:
    return [[tuple(fragment) for fragment in row] for row in plan]


def wrapped(lengths: list[int], max_length: int, *positions: int) -> quire.Plan:
    options = PlanOptions(max_length=max_length, strategy="wrapped")
    return plan_documents(lengths, options, trained_at(*positions))


def test_a_row_of_only_unsupervised_pieces_is_dropped():
    plan = wrapped([6, 6], 4, 0, 5)  # 0:4 | 4:6 and 0:2 | 2:6, of which the middle row goes
    assert rows(plan) == [[(0, 0, 4)], [(1, 2, 6)]]
    assert plan.ledger.tokens.dropped == {"unsupervised": 4}
    assert plan.ledger.tokens.emitted == 8


def test_an_unsupervised_piece_is_removed_from_its_row():
    plan = wrapped([3, 3, 3], 5, 0, 0, 0)
    assert rows(plan) == [[(0, 0, 3), (1, 0, 2)], [(2, 0, 3)]]
    assert plan.ledger.tokens.dropped == {"unsupervised": 1}
    assert plan.ledger.documents.emitted == 3


def test_unsupervised_documents_and_pieces_are_counted_together():
    plan = wrapped([3, 2, 3, 3], 5, 0, -1, 0, 0)
    assert rows(plan) == [[(0, 0, 3), (2, 0, 2)], [(3, 0, 3)]]
    assert plan.ledger.tokens.dropped == {"unsupervised": 3}
    assert plan.ledger.documents.dropped == {"unsupervised": 1}


def test_no_piece_is_dropped_if_each_is_supervised():
    options = PlanOptions(max_length=5, strategy="wrapped")
    everything = plan_documents(
        [3, 3, 3], options, lambda fragments: np.ones(len(fragments), dtype=bool)
    )
    assert rows(everything) == rows(plan_documents([3, 3, 3], options))
    assert rows(everything) == [[(0, 0, 3), (1, 0, 2)], [(1, 2, 3), (2, 0, 3)]]


@pytest.mark.parametrize(
    ("strategy", "overlong"), [("wrapped", "split"), ("wrapped", "fill"), ("greedy", "fill")]
)
def test_a_poured_document_is_cut_only_at_row_ends(strategy, overlong):
    plan = quire.make_plan([2, 9], 4, strategy, overlong=overlong)
    assert rows(plan) == [[(0, 0, 2), (1, 0, 2)], [(1, 2, 6)], [(1, 6, 9)]]


def test_fill_closes_the_gaps_in_the_rows_of_best_fit():
    plan = quire.make_plan([3, 5, 5, 3], 8, "best_fit", overlong="fill")
    assert [[document for document, _, _ in row] for row in rows(plan)] == [[1, 0], [2, 3]]
