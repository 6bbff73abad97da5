"""Weights and denominators of a packed loss, from boundaries and labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import InvalidRow
from quire.loss import LossTotals, packed_weights

LABELS = [[-100, 5, 5, -100, 5, -100], [-100, -100, 5, 5, -100, -100]]
SEGMENTS = [[1, 1, 1, 2, 2, 0], [1, 1, 2, 2, 2, 3]]


@pytest.mark.parametrize(
    ("averaging", "weights", "total"),
    [
        ("token", [[0, 1, 1, 0, 1, 0], [0, 0, 1, 1, 0, 0]], 5.0),
        ("document", [[0, 0.5, 0.5, 0, 1, 0], [0, 0, 0.5, 0.5, 0, 0]], 3.0),
    ],
)
def test_the_denominator_is_the_sum_of_weights(averaging, weights, total):
    found, totals = packed_weights(LABELS, SEGMENTS, averaging=averaging)
    assert found.tolist() == weights
    assert totals == LossTotals(tokens=5, documents=3, weight=total)


def test_document_weights_multiply_the_targets_of_their_documents():
    weights, totals = packed_weights(
        LABELS, SEGMENTS, averaging="document", document_weights=[2, 1, 9, 4, 9]
    )
    assert weights.tolist() == [[0, 1, 1, 0, 1, 0], [0, 0, 2, 2, 0, 0]]
    assert totals == LossTotals(tokens=5, documents=3, weight=7.0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], r"shape \(2,\), but the rows have 5 documents"),
        ([1, 2, 3, 4, -1], "contain -1.0, but a weight is a finite number >= 0"),
        ([1, 2, float("nan"), 4, 1], "contain nan"),
    ],
)
def test_document_weights_that_fit_no_documents_are_rejected(weights, message):
    with pytest.raises(InvalidRow, match=message):
        packed_weights(LABELS, SEGMENTS, document_weights=weights)


@given(
    rows=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=4),
    averaging=st.sampled_from(["token", "document", "sqrt"]),
    data=st.data(),
)
def test_totals_of_rows_add_up_to_those_of_all_rows_in_one(rows, averaging, data):
    parts, labels, segments = [], [], []
    for lengths in rows:
        ids = np.repeat(np.arange(1, len(lengths) + 1), lengths)
        targets = data.draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
        row = np.where(targets, 7, -100)
        parts.append(packed_weights(row[None], ids[None], averaging=averaging)[1])
        labels.append(row)
        segments.append(ids + sum(len(each) for each in rows[: len(segments)]))
    flat = packed_weights(
        np.concatenate(labels)[None], np.concatenate(segments)[None], averaging=averaging
    )[1]
    total = LossTotals.sum(parts)
    assert (total.tokens, total.documents) == (flat.tokens, flat.documents)
    assert total.weight == pytest.approx(flat.weight)
