"""Records of one group share a row, for columns of every type."""

from __future__ import annotations

import pyarrow as pa
import pytest

import quire
from quire.plan.strategies import BUILT_IN


def rows_of(groups, lengths=None, **options):
    lengths = lengths or [1] * len(groups)
    table = pa.table(
        {"input_ids": [[document] * n for document, n in enumerate(lengths)], "group": groups}
    )
    options = {"max_length": 4, "strategy": "greedy", "group_column": "group", **options}
    rows = quire.pack_dataset(table, keep_sources=True, **options)
    return rows["document_ids"].to_pylist()


def test_pairs_that_are_far_apart_share_a_row():
    assert rows_of(["a", "b", "a", "b"], [2, 1, 2, 3]) == [[0, 2], [1, 3]]


def test_a_record_without_a_group_is_its_own_group():
    assert rows_of([None, "a", None, "a"], [1, 2, 3, 2]) == [[0], [1, 3], [2]]
    assert rows_of([None, "a", None, "a"], [1, 1, 1, 1]) == [[0, 1, 3, 2]]
    assert rows_of(pa.nulls(3), [3, 3, 1]) == [[0], [1, 2]]


@pytest.mark.parametrize(
    "groups",
    [
        pa.array([7, 5, 7, 5]),
        pa.array([0.5, 2.0, 0.5, 2.0]),
        pa.array([True, False, True, False]),
        pa.array(["x", "y", "x", "y"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(
            pa.array([250, 1, 250, 1], pa.uint8()), list(map(str, range(256)))
        ),
        pa.chunked_array([pa.array(part).dictionary_encode() for part in (["x"], ["y", "x", "y"])]),
        pa.chunked_array([["x", "y"], [], ["x", "y"]]),
    ],
    ids=["int", "float", "bool", "dictionary", "uint8 dictionary", "two dictionaries", "chunks"],
)
def test_values_of_every_type_make_groups(groups):
    assert rows_of(groups, [2, 1, 2, 3]) == [[0, 2], [1, 3]]


def test_a_null_in_a_slice_shares_no_group():
    """Codes of a slice may be larger than its number of rows."""
    column = pa.array([*"abcdefgh", "x", None, "x"]).dictionary_encode()
    table = pa.table({"input_ids": [[n, n] for n in range(11)], "group": column}).slice(8)
    rows = quire.pack_dataset(
        table, max_length=4, strategy="greedy", group_column="group", keep_sources=True
    )
    assert rows["document_ids"].to_pylist() == [[0, 2], [1]]


def test_a_group_that_is_too_long_is_counted_with_all_its_members():
    table = pa.table({"input_ids": [[1, 1, 1], [2, 2], [3]], "group": ["a", "b", "a"]})
    for strategy in BUILT_IN:
        rows, ledger = quire.pack_dataset(
            table, max_length=3, group_column="group", strategy=strategy, return_ledger=True
        )
        assert rows["input_ids"].to_pylist() == [[2, 2]]
        assert ledger.check().documents.dropped == {"group_too_long": 2}
        assert ledger.tokens.dropped == {"group_too_long": 4}


def test_the_size_of_a_group_includes_alignment():
    assert rows_of(["a", "a"], [1, 1], max_length=8, align=4) == [[0, 1]]
    with pytest.warns(UserWarning, match="group_too_long: 3 documents"):
        assert rows_of(["a"] * 3, [1, 1, 1], max_length=8, align=4) == []


def test_a_row_that_is_too_short_drops_whole_groups():
    with pytest.warns(UserWarning, match="row_too_short: 2 documents, 2 tokens"):
        assert rows_of(["a", "b", "a", "b"], [1, 2, 1, 2], min_length=3) == [[1, 3]]


def test_texts_with_bos_and_empty_ones_are_grouped():
    records = [{"text": t, "pair": p} for t, p in (("ab", 1), ("", 1), ("c", 2), ("d", 1))]
    with pytest.warns(UserWarning, match="empty: 1 document, "):
        rows = quire.pack_dataset(
            records, "byte", max_length=7, group_column="pair", strategy="greedy", keep_sources=True
        )
    assert rows["document_ids"].to_pylist() == [[0, 3], [2]]
    assert rows["input_ids"].to_pylist()[0] == [1, 100, 101, 2, 1, 103, 2]


def test_conversation_pairs_share_a_row_and_rows_are_shuffled_by_seed():
    groups = [n // 2 for n in range(40)]
    orders = [rows_of(groups, [2] * 40, strategy="best_fit", seed=seed) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == [[2 * n, 2 * n + 1] for n in range(20)]
