"""The ledger of literal fragments and fates."""

from __future__ import annotations

import numpy as np
import pytest

from quire.ledger import Ledger, Tally, TokenTally
from quire.plan.build import count_fragments
from quire.plan.fragments import Fragments
from quire.plan.options import PlanOptions


def fragments(*parts: tuple[int, int, int]) -> Fragments:
    documents, starts, stops = np.array(parts, dtype=np.int32).T
    return Fragments(documents=documents, starts=starts, stops=stops)


def test_a_document_counts_under_the_best_fate_of_its_fragments():
    cut = fragments(
        (0, 0, 4), (1, 0, 4), (2, 0, 3), (1, 4, 8), (3, 0, 2), (1, 8, 9), (4, 0, 5), (3, 2, 4)
    )
    fate = np.array([0, 1, 2, 3, 3, 1, 0, 2], dtype=np.int8)
    ledger = count_fragments(
        np.array([4, 9, 3, 4, 5, 0]),
        cut,
        fate,
        2,
        PlanOptions(max_length=8, prefix=1, overlong="fill"),
    )
    # Document 1 has two pieces in short rows, document 3 one unsupervised piece.
    assert ledger == Ledger(
        documents=Tally(
            input=6,
            emitted=2,
            dropped={"empty": 1, "row_too_short": 1, "unsupervised": 2},
        ),
        tokens=TokenTally(
            input=25,
            emitted=9,
            dropped={"row_too_short": 5, "unsupervised": 5, "group_too_long": 6},
            special=2,
            padding=2 * 8 - 9 - 2,
        ),
    )


def test_what_a_dropped_fragment_repeats_was_emitted_and_is_not_lost():
    cut = fragments((0, 0, 4), (0, 2, 6), (0, 4, 8), (0, 6, 9))
    fate = np.array([0, 1, 0, 2], dtype=np.int8)
    tokens = count_fragments(
        np.array([9]), cut, fate, 2, PlanOptions(max_length=4, stride=2)
    ).tokens
    # 0:4 and 4:8 are emitted; 2:6 loses nothing, 6:9 loses one token.
    assert tokens == TokenTally(input=9, emitted=8, dropped={"unsupervised": 1})


def test_without_fates_every_fragment_counts_as_emitted_and_overlap_is_counted():
    cut = fragments((0, 0, 4), (0, 2, 6), (2, 0, 3))
    options = PlanOptions(max_length=4, stride=2)
    ledger = count_fragments(np.array([6, 0, 3], dtype=np.uint16), cut, None, 3, options)
    assert ledger == Ledger(
        documents=Tally(input=3, emitted=2, dropped={"empty": 1}),
        tokens=TokenTally(input=9, emitted=9, overlap=2, padding=1),
    )


@pytest.mark.parametrize(
    ("overlong", "kept", "documents", "tokens"),
    [
        ("drop", [(1, 0, 8)], {"too_long": 2}, {"too_long": 19}),
        ("truncate", [(0, 0, 8), (1, 0, 8), (2, 0, 8)], {}, {"truncated": 3}),
        ("truncate_left", [(0, 2, 10), (1, 0, 8), (2, 1, 9)], {}, {"truncated": 3}),
        ("split", [(0, 0, 8), (0, 8, 10), (1, 0, 8), (2, 0, 8), (2, 8, 9)], {}, {}),
    ],
)
def test_the_policy_is_applied_only_to_documents_longer_than_a_row(
    overlong, kept, documents, tokens
):
    options = PlanOptions(max_length=9, prefix=1, overlong=overlong)
    ledger = count_fragments(np.array([10, 8, 9]), fragments(*kept), None, len(kept), options)
    assert dict(ledger.documents.dropped) == documents
    assert dict(ledger.tokens.dropped) == tokens
    assert ledger.tokens.emitted == 27 - sum(tokens.values())
    assert ledger.tokens.special == len(kept)
    assert ledger.tokens.padding == 9 * len(kept) - ledger.tokens.emitted - len(kept)
