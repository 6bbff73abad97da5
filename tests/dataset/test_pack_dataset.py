"""Whole datasets in every supported form: literal rows first."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict, load_from_disk

import quire
from quire.collate import DataCollatorForCausalLM

DOCUMENTS = [[10, 11, 12], [20, 21, 22, 23], [30, 31, 32, 33, 34], [40, 41, 42, 43, 44, 45]]
GREEDY = [
    {"input_ids": [10, 11, 12, 20, 21, 22, 23], "document_starts": [0, 3]},
    {"input_ids": [30, 31, 32, 33, 34], "document_starts": [0]},
    {"input_ids": [40, 41, 42, 43, 44, 45], "document_starts": [0]},
]
WRAPPED = [
    {"input_ids": [10, 11, 12, 20, 21, 22, 23, 30], "document_starts": [0, 3, 7]},
    {"input_ids": [31, 32, 33, 34, 40, 41, 42, 43], "document_starts": [0, 4]},
    {"input_ids": [44, 45], "document_starts": [0]},
]
BEST_FIT = [
    {"input_ids": [40, 41, 42, 43, 44, 45], "document_starts": [0]},
    {"input_ids": [30, 31, 32, 33, 34, 10, 11, 12], "document_starts": [0, 5]},
    {"input_ids": [20, 21, 22, 23], "document_starts": [0]},
]


def packed(dataset, tokenizer=None, **options):
    rows = quire.pack_dataset(dataset, tokenizer, **{"max_length": 8, **options})
    return rows.to_list() if isinstance(rows, Dataset) else rows.to_pylist()


@pytest.mark.parametrize(
    ("strategy", "rows"), [("greedy", GREEDY), ("wrapped", WRAPPED), ("best_fit", BEST_FIT)]
)
def test_tokens_become_these_rows(strategy, rows):
    records = [{"input_ids": ids} for ids in DOCUMENTS]
    assert packed(records, strategy=strategy, shuffle=False) == rows


def test_text_gets_bos_and_eos_and_tokens_get_none():
    assert packed([{"text": "ab"}, {"text": "c"}], "byte") == [
        {"input_ids": [1, 100, 101, 2, 1, 102, 2], "document_starts": [0, 4]}
    ]
    assert packed([{"input_ids": [100, 101]}], "byte") == [
        {"input_ids": [100, 101], "document_starts": [0]}
    ]
    plain = packed([{"text": "ab"}], "byte", add_bos=False, add_eos=False)
    assert plain == [{"input_ids": [100, 101], "document_starts": [0]}]


def test_every_fragment_of_a_text_starts_with_bos_and_the_last_ends_with_eos():
    rows = packed([{"text": "abcdefg"}], "byte", max_length=5, strategy="greedy", stride=1)
    assert [row["input_ids"] for row in rows] == [
        [1, 100, 101, 102, 103],
        [1, 103, 104, 105],
        [1, 105, 106, 2],
    ]


def test_the_source_of_every_fragment_is_kept_on_request():
    rows = packed([{"input_ids": ids} for ids in DOCUMENTS], strategy="wrapped", keep_sources=True)
    assert [row["document_ids"] for row in rows] == [[0, 1, 2], [2, 3], [3]]
    assert [row["document_offsets"] for row in rows] == [[0, 0, 0], [1, 0], [4]]


def test_boundaries_are_also_written_as_positions_and_lengths_on_request():
    records = [{"input_ids": ids} for ids in DOCUMENTS]
    rows = packed(records, strategy="wrapped", position_ids=True, seq_lengths=True)
    assert [row["position_ids"] for row in rows] == [
        [0, 1, 2, 0, 1, 2, 3, 0],
        [0, 1, 2, 3, 0, 1, 2, 3],
        [0, 1],
    ]
    assert [row["seq_lengths"] for row in rows] == [[3, 4, 1], [4, 4], [2]]
    assert packed([], position_ids=True, seq_lengths=True) == []


def test_the_text_column_can_have_another_name():
    records = [{"body": "ab", "text": "no"}]
    assert packed(records, "byte", text_column="body")[0]["input_ids"] == [1, 100, 101, 2]


# Kinds of input


def hf(documents, **more):
    return Dataset.from_dict({"input_ids": documents, **more})


def test_a_dataset_comes_back_as_a_dataset_that_feeds_the_collator():
    rows = quire.pack_dataset(hf(DOCUMENTS), max_length=8, strategy="greedy")
    assert isinstance(rows, Dataset)
    assert rows.to_list() == GREEDY
    batch = DataCollatorForCausalLM(quire.ByteTokenizer())([rows[0], rows[1]])
    assert batch["position_ids"].tolist()[0] == [0, 1, 2, 0, 1, 2, 3]
    assert batch["labels"].tolist()[1] == [-100, 31, 32, 33, 34, -100, -100]


def test_a_dataset_with_an_index_of_rows_is_packed_in_that_order():
    reversed_ = hf([[99], *DOCUMENTS[::-1]]).select([4, 3, 2, 1])
    assert reversed_._indices is not None
    assert packed(reversed_, strategy="greedy") == GREEDY
    shuffled = hf(DOCUMENTS).shuffle(seed=5)
    assert packed(shuffled, strategy="greedy") == packed(
        [{"input_ids": row["input_ids"]} for row in shuffled], strategy="greedy"
    )


def test_only_the_slice_of_a_dataset_is_packed():
    part = hf([[99, 98], *DOCUMENTS, [97]]).select(range(1, 5))
    assert part._indices is None
    assert packed(part, strategy="greedy") == GREEDY


def test_a_dataset_on_disk_is_packed_like_one_in_memory(tmp_path):
    hf(DOCUMENTS).save_to_disk(tmp_path / "saved", num_shards=2)
    mapped = load_from_disk(tmp_path / "saved")
    assert mapped.data.column(0).num_chunks == 2
    assert packed(mapped, strategy="greedy") == GREEDY
    assert packed(mapped.select([3, 2, 1, 0])) == packed(hf(DOCUMENTS[::-1]))


def test_a_format_of_the_dataset_changes_nothing():
    formatted = hf(DOCUMENTS, labels=DOCUMENTS).with_format("numpy", columns=["labels"])
    assert packed(formatted, strategy="greedy", columns=[]) == GREEDY


def test_a_dict_of_splits_returns_a_dict_of_splits():
    splits = DatasetDict(train=hf(DOCUMENTS), test=hf([[1, 2]]))
    rows, ledgers = quire.pack_dataset(splits, max_length=8, strategy="greedy", return_ledger=True)
    assert isinstance(rows, DatasetDict)
    assert rows["train"].to_list() == GREEDY
    assert rows["test"].to_list() == [{"input_ids": [1, 2], "document_starts": [0]}]
    assert ledgers["train"].tokens.emitted == 18 and ledgers["test"].tokens.emitted == 2


def test_an_error_names_its_split():
    with pytest.raises(quire.errors.InvalidDocument, match="record 1 has token id -5") as caught:
        quire.pack_dataset({"train": hf([[1]]), "test": hf([[1], [-5]])}, max_length=8)
    assert caught.value.__notes__ == ["in split 'test'"]


LIST_TYPES = [
    pa.list_(pa.int32()),
    pa.large_list(pa.int64()),
    pa.list_view(pa.int16()),
    pa.large_list_view(pa.uint32()),
]


@pytest.mark.parametrize("kind", LIST_TYPES, ids=str)
def test_arrow_lists_may_be_sliced_chunked_and_contain_nulls(kind):
    column = pa.array([[97, 98], *DOCUMENTS[:2], None, *DOCUMENTS[2:], [99]], kind)
    table = pa.table({"input_ids": pa.chunked_array([column[:3], column[3:3], column[3:]])})
    table = table.slice(1, 5)
    with pytest.raises(quire.errors.InvalidDocument, match="record 2 has no input_ids"):
        packed(table)
    rows, ledger = quire.pack_dataset(
        table, max_length=8, strategy="greedy", max_bad_records=1, return_ledger=True
    )
    assert rows.to_pylist() == GREEDY
    assert ledger.documents.dropped == {"bad_record": 1}


def test_a_null_list_with_hidden_values_is_empty():
    values = pa.array([1, 2, 66, 66, 5, 6], pa.int32())
    mask = pa.array([False, True, False])
    ragged = pa.ListArray.from_arrays(pa.array([0, 2, 4, 6], pa.int32()), values, mask=mask)
    fixed = pa.FixedSizeListArray.from_arrays(values, 2, mask=mask)
    for column in (ragged, fixed):
        for labels in ([[1, 2], [7], [5, 6]], [[1, 2], None, [5, 6]]):
            rows, ledger = quire.pack_dataset(
                pa.table({"input_ids": column, "labels": labels}),
                max_length=8,
                strategy="greedy",
                max_bad_records=1,
                return_ledger=True,
            )
            assert rows["input_ids"].to_pylist() == [[1, 2, 5, 6]]
            assert rows["labels"].to_pylist() == [[1, 2, 5, 6]]
            ledger.check()


def test_fixed_size_lists_may_be_sliced():
    column = pa.array([[9, 9], [1, 2], [3, 4], [8, 8]], pa.list_(pa.int32(), 2))
    rows = packed(pa.table({"input_ids": column}).slice(1, 2), strategy="greedy")
    assert rows == [{"input_ids": [1, 2, 3, 4], "document_starts": [0, 2]}]


def test_list_views_may_overlap_and_run_backwards():
    column = pa.ListViewArray.from_arrays(
        pa.array([4, 0, 2], pa.int32()),
        pa.array([2, 2, 3], pa.int32()),
        pa.array([1, 2, 3, 4, 5, 6], pa.int32()),
    )
    rows = packed(pa.table({"input_ids": column}), strategy="greedy")
    assert rows == [{"input_ids": [5, 6, 1, 2, 3, 4, 5], "document_starts": [0, 2, 4]}]


def test_a_record_batch_is_accepted_as_a_table():
    batch = pa.record_batch({"input_ids": pa.array(DOCUMENTS)})
    assert packed(batch, strategy="greedy") == GREEDY


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_text_columns_of_every_type_are_accepted(kind):
    table = pa.table({"text": pa.array(["x", "ab", "c", "y"], kind)}).slice(1, 2)
    assert packed(table, "byte")[0]["input_ids"] == [1, 100, 101, 2, 1, 102, 2]


@pytest.mark.parametrize(
    "nothing",
    [
        [],
        pa.table({"input_ids": pa.array([], pa.list_(pa.int32()))}),
        pa.table({"text": pa.array([], pa.string())}),
        Dataset(pa.table({"input_ids": pa.array([], pa.list_(pa.int32()))})),
    ],
    ids=["list", "tokens", "text", "dataset"],
)
def test_an_empty_dataset_gives_no_rows(nothing):
    rows, ledger = quire.pack_dataset(nothing, "byte", max_length=8, return_ledger=True)
    assert len(rows) == 0
    assert set(rows.column_names) == {"input_ids", "document_starts"}
    assert ledger == quire.Ledger()


def test_rows_over_many_chunks_of_output_stay_in_order(monkeypatch):
    monkeypatch.setattr(sys.modules["quire.gather"], "_CHUNK", 50)
    rng = np.random.default_rng(0)
    documents = [list(range(n)) for n in rng.integers(1, 30, 60)]
    table = quire.pack_dataset(hf(documents), max_length=32, strategy="greedy")
    assert table.data.column("input_ids").num_chunks > 5
    flat = [token for row in table["input_ids"] for token in row]
    assert flat == [token for document in documents for token in document]


# Order, seeds and fingerprints


def test_rows_are_shuffled_by_seed_unless_the_strategy_keeps_order():
    records = [{"input_ids": [n] * 8} for n in range(50)]
    in_order = [[n] * 8 for n in range(50)]

    def order(**options):
        return [row["input_ids"] for row in packed(records, **options)]

    assert order(strategy="greedy") == order(strategy="wrapped") == in_order
    assert order() == order() != in_order
    assert order(seed=1) != order(seed=2)
    assert order(shuffle=False) == in_order
    assert order(strategy="greedy", shuffle=True) != in_order
    assert sorted(order()) == in_order


def test_the_fingerprint_depends_on_the_content_of_the_rows():
    dataset = hf([[n] * (n + 1) for n in range(7)] * 20)
    again = hf([[n] * (n + 1) for n in range(7)] * 20)

    def fingerprint(dataset=dataset, **options):
        return quire.pack_dataset(dataset, **{"max_length": 8, **options})._fingerprint

    assert fingerprint() == fingerprint() == fingerprint(again)
    different = [
        fingerprint(),
        fingerprint(max_length=9),
        fingerprint(seed=1),
        fingerprint(strategy="greedy"),
        fingerprint(keep_sources=True),
        fingerprint(dataset.select(range(10))),
        fingerprint(seed=None),
        fingerprint(seed=None),
    ]
    assert len(set(different)) == len(different)


def test_a_tokenizer_that_changed_changes_the_fingerprint():
    dataset = Dataset.from_dict({"text": ["ab", "c"]})

    class Shifted:
        bos_token_id = eos_token_id = None
        by = 0

        def __call__(self, texts):
            return {"input_ids": [[ord(c) + Shifted.by for c in text] for text in texts]}

    before = quire.pack_dataset(dataset, Shifted(), max_length=8)
    Shifted.by = 1
    after = quire.pack_dataset(dataset, Shifted(), max_length=8)
    assert before._fingerprint != after._fingerprint
    assert before.map(len_of)["length"] == after.map(len_of)["length"] == [3]


def len_of(row):
    return {"length": len(row["input_ids"])}


def test_the_name_of_the_split_is_kept():
    dataset = Dataset.from_dict({"input_ids": [[1]]}, split="validation")
    assert quire.pack_dataset(dataset, max_length=8).split == "validation"


# One planner


def test_a_registered_strategy_is_used_by_pack_dataset_and_block_tokenize_fn(registered):
    seen = []

    def one_each(sizes, max_length, options):
        seen.append(list(sizes))
        return list(range(len(sizes)))

    registered("one_each_for_this_test", one_each)
    texts = ["ab", "c"]
    options = {"add_bos": False, "add_eos": False, "max_length": 8}
    rows = packed(
        [{"text": text} for text in texts], "byte", strategy="one_each_for_this_test", **options
    )
    mapped = quire.block_tokenize_fn(
        {"text": texts}, "byte", "text", packed=True,
        packing_strategy="one_each_for_this_test", **options,
    )  # fmt: skip
    assert mapped["input_ids"] == [[100, 101], [102]]
    assert sorted(row["input_ids"] for row in rows) == mapped["input_ids"]
    assert seen == [[2, 1], [2, 1]]


@pytest.mark.parametrize("max_length", [7, 8, 9, 8191, 8192, 8193])
def test_row_lengths_around_a_power_of_two_pack_equally_well(max_length):
    lengths = [max_length, max_length - 1, 1, max_length // 2, max_length - max_length // 2]
    rows = packed([{"input_ids": [5] * n} for n in lengths], max_length=max_length)
    assert sorted(len(row["input_ids"]) for row in rows) == [max_length] * 3


@pytest.mark.parametrize(
    ("overlong", "kept"),
    [
        ("split", {7: [7], 8: [8], 9: [8, 1], 16: [8, 8]}),
        ("truncate", {7: [7], 8: [8], 9: [8], 16: [8]}),
        ("drop", {7: [7], 8: [8], 9: [], 16: []}),
    ],
)
def test_lengths_at_the_edge_of_a_row_are_exact_by_policy(overlong, kept):
    for length, expected in kept.items():
        rows, ledger = quire.pack_dataset(
            hf([list(range(length)), [1]]),
            max_length=8,
            overlong=overlong,
            max_documents_per_row=1,
            shuffle=False,
            strategy="greedy",
            return_ledger=True,
        )
        assert [len(row) for row in rows["input_ids"]][:-1] == expected
        assert ledger.check().tokens.num_dropped == length - sum(expected)
