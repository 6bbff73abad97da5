"""Moving tokens into rows."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.documents import Documents
from quire.gather import gather
from quire.plan import PlanOptions, plan_documents

BOS = 1


def documents_of(lists: list[list[int]], *, prefix: bool, slack: int = 0) -> Documents:
    """The lists with other tokens before and after, as in a slice of a larger column."""
    flat = [BOS] * prefix + [token for ids in lists for token in ids]
    values = pa.array([-7] * slack + flat + [-8] * slack, pa.int32()).slice(slack, len(flat))
    lengths = np.array([len(ids) for ids in lists], dtype=np.int64)
    return Documents(
        columns={"input_ids": values, "labels": pa.array([-t for t in flat], pa.int64())},
        offsets=np.cumsum(lengths) - lengths + prefix,
        lengths=lengths,
        numbers=np.arange(len(lists)) * 10,
        prefix_at=0 if prefix else None,
    )


def packed(documents: Documents, keep_sources: bool = False, **options) -> pa.Table:
    plan = plan_documents(documents.lengths, PlanOptions(prefix=documents.prefix, **options))
    return gather(documents, plan, keep_sources=keep_sources)


LISTS = [[10, 11, 12], [20, 21, 22, 23], [30, 31, 32, 33, 34], [40, 41, 42, 43, 44, 45]]


def test_rows_hold_fragments_and_their_starts():
    table = packed(documents_of(LISTS, prefix=False), max_length=8, strategy="wrapped")
    assert table["input_ids"].to_pylist() == [
        [10, 11, 12, 20, 21, 22, 23, 30],
        [31, 32, 33, 34, 40, 41, 42, 43],
        [44, 45],
    ]
    assert table["document_starts"].to_pylist() == [[0, 3, 7], [0, 4], [0]]
    assert table["labels"].to_pylist()[2] == [-44, -45]


def test_the_prefix_precedes_every_fragment():
    table = packed(documents_of(LISTS[:2], prefix=True), max_length=4, strategy="wrapped")
    assert table["input_ids"].to_pylist() == [[1, 10, 11, 12], [1, 20, 21, 22], [1, 23]]
    table = packed(documents_of(LISTS[:2], prefix=True), max_length=9, strategy="greedy")
    assert table["input_ids"].to_pylist() == [[1, 10, 11, 12, 1, 20, 21, 22, 23]]
    assert table["document_starts"].to_pylist() == [[0, 4]]


def test_the_source_of_every_fragment_is_kept_on_request():
    documents = documents_of(LISTS, prefix=False)
    table = packed(documents, keep_sources=True, max_length=8, strategy="wrapped")
    assert table["document_ids"].to_pylist() == [[0, 10, 20], [20, 30], [30]]
    assert table["document_offsets"].to_pylist() == [[0, 0, 0], [1, 0], [4]]
    assert packed(documents, max_length=8).column_names == [
        "input_ids",
        "labels",
        "document_starts",
    ]


def test_a_plan_without_rows_gives_an_empty_table_of_the_same_types():
    empty = packed(documents_of([], prefix=False), max_length=8)
    assert empty.num_rows == 0
    assert empty.schema == packed(documents_of(LISTS, prefix=False), max_length=8).schema


@pytest.mark.parametrize("chunk", [1, 3, 1 << 22])
@given(
    lists=st.lists(st.lists(st.integers(2, 9), min_size=1, max_size=9), max_size=12),
    prefix=st.booleans(),
    slack=st.integers(0, 3),
    max_length=st.integers(2, 12),
    strategy=st.sampled_from(["wrapped", "greedy", "best_fit"]),
)
def test_rows_follow_the_plan_for_any_chunks(chunk, lists, prefix, slack, max_length, strategy):
    documents = documents_of(lists, prefix=prefix, slack=slack)
    options = PlanOptions(max_length=max_length, strategy=strategy, prefix=int(prefix))
    plan = plan_documents(documents.lengths, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[gather.__module__], "_CHUNK", chunk)
        table = gather(documents, plan)
    expected_rows, expected_starts = [], []
    for row in plan:
        tokens, starts = [], []
        for fragment in row:
            starts.append(len(tokens))
            tokens += [BOS] * prefix + lists[fragment.document][fragment.start : fragment.stop]
        expected_rows.append(tokens)
        expected_starts.append(starts)
    assert table["input_ids"].to_pylist() == expected_rows
    assert table["labels"].to_pylist() == [[-t for t in row] for row in expected_rows]
    assert table["document_starts"].to_pylist() == expected_starts
