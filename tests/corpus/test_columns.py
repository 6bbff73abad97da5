"""Columns of given tokens: labels and masks are kept or refused, never lost."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from quire.errors import InvalidDocument, InvalidOption, QuireError
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.commands import run
from tests.corpus.corpora import jsonl, pack, rows

BARE, MARKED = {"input_ids": [5, 6]}, {"input_ids": [7, 8], "completion_mask": [0, 1]}


def test_a_completion_mask_is_packed_by_default(tmp_path):
    corpus = jsonl(tmp_path / "a.jsonl", [MARKED])
    pack(corpus, tmp_path / "out", None, pretokenized=True)
    assert rows(tmp_path / "out")["completion_mask"].to_pylist() == [[0, 1]]


@pytest.mark.parametrize("first", [BARE, {**BARE, "completion_mask": None}])
def test_17_a_mask_that_the_first_record_lacks_is_refused(tmp_path, first):
    corpus = jsonl(tmp_path / "a.jsonl", [first, MARKED])
    with pytest.raises(
        InvalidDocument,
        match=r"record 1 .* has 'completion_mask', which the first record of the input has not",
    ):
        pack(corpus, tmp_path / "out", None, pretokenized=True)
    result = pack(corpus, tmp_path / "out", None, pretokenized=True, columns=["input_ids"])
    assert result.ledger.documents.emitted == 2, "who names columns wants no others"


def test_22_a_mask_that_the_first_table_lacks_is_refused(tmp_path):
    for name, record in (("a", BARE), ("b", MARKED)):
        pq.write_table(pa.Table.from_pylist([record]), tmp_path / f"{name}.parquet")
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with pytest.raises(InvalidDocument, match=r"b\.parquet has a column 'completion_mask' but .*a"):
        pack(files, tmp_path / "out", None, pretokenized=True)
    pack(files, tmp_path / "out", None, pretokenized=True, columns=["input_ids"])


def parquet(path, records):
    pq.write_table(pa.Table.from_pylist(records), path)
    return path


def arrow(path, records):
    table = pa.Table.from_pylist(records)
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    return path


@pytest.mark.parametrize("write", [jsonl, parquet, arrow])
@pytest.mark.parametrize("columns", [None, ["input_ids"]], ids=["all", "mask left out"])
def test_padded_records_are_bad_records(tmp_path, write, columns):
    padded = {"input_ids": [5, 6, 0], "attention_mask": [1, 1, 0]}
    records = [padded, {"input_ids": [7], "attention_mask": [1]}, padded]
    corpus = write(tmp_path / f"a.{write.__name__}", records)
    asked = {"pretokenized": True, "columns": columns}
    with pytest.raises(
        InvalidDocument, match=r"record 0.* is padded: its attention_mask has 1 zeros"
    ):
        pack(corpus, tmp_path / "out", None, **asked)
    result = pack(corpus, tmp_path / "out", None, **asked, max_bad_records=2)
    packed = rows(tmp_path / "out")
    assert packed["input_ids"].to_pylist() == [[7]]
    assert ("attention_mask" in packed.column_names) == (columns is None)
    assert result.ledger.documents.dropped == {"bad_record": 2}


@pytest.mark.parametrize("write", [parquet, arrow])
def test_a_table_with_only_padded_records_gives_no_rows(tmp_path, write):
    padded = {"input_ids": [5, 0], "attention_mask": [1, 0]}
    corpus = write(tmp_path / f"a.{write.__name__}", [padded])
    asked = {"pretokenized": True, "columns": ["input_ids"], "max_bad_records": 1}
    with pytest.warns(UserWarning, match="has no rows; documents: 1 read, 1 dropped as bad_record"):
        pack(corpus, tmp_path / "out", None, **asked)


@pytest.mark.parametrize(
    ("name", "values"), [("input_ids", [3.7, 4]), ("labels", [3, 3.0]), ("weight", [0.5, 1])]
)
def test_floats_are_not_truncated_if_the_first_record_has_integers(tmp_path, name, values):
    first = {"input_ids": [1, 2], "labels": [1, 2], "weight": [1, 1]}
    corpus = jsonl(tmp_path / "a.jsonl", [first, {**first, name: values}])
    asked = {"pretokenized": True, "columns": ["labels", "weight"]}
    with pytest.raises(InvalidDocument, match=rf"record 1 .* with a point under '{name}', where"):
        pack(corpus, tmp_path / "out", None, **asked)
    pack(corpus, tmp_path / "out", None, **asked, max_bad_records=1)
    assert rows(tmp_path / "out")["weight"].to_pylist() == [[1, 1]]


def test_integers_become_floats_if_the_first_record_has_floats(tmp_path):
    records = [{"input_ids": [1], "weight": [0.5]}, {"input_ids": [2], "weight": [1]}]
    corpus = jsonl(tmp_path / "a.jsonl", records)
    pack(corpus, tmp_path / "out", None, pretokenized=True, columns=["weight"])
    assert rows(tmp_path / "out")["weight"].to_pylist() == [[0.5, 1.0]]


@pytest.mark.parametrize("write", [jsonl, parquet, arrow])
@pytest.mark.parametrize("columns", [None, ["input_ids"]], ids=["all", "tokens alone"])
@pytest.mark.parametrize(
    "mark", [{"document_starts": [0, 1]}, {"seq_lengths": [1, 1]}, {"position_ids": [0, 0]}]
)
def test_16_rows_that_are_packed_already_are_refused_in_later_files(tmp_path, write, columns, mark):
    first = write(tmp_path / f"a.{write.__name__}", [{"input_ids": [5, 6]}])
    packed = write(tmp_path / f"b.{write.__name__}", [{"input_ids": [7, 8], **mark}])
    with pytest.raises(QuireError, match=r"b\..* (is packed already|holds several documents)"):
        pack([first, packed], tmp_path / "out", None, pretokenized=True, columns=columns)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("write", [jsonl, parquet, arrow])
def test_booleans_are_packed_opened_and_verified(tmp_path, write):
    records = [
        {"input_ids": [1, 2, 3], "loss_mask": [True, False, True]},
        {"input_ids": [4, 5], "loss_mask": [True, True]},
    ]
    corpus = write(tmp_path / f"a.{write.__name__}", records)
    for name in ("packed", "indexed"):
        out = tmp_path / name
        pack(corpus, out, None, pretokenized=True, max_length=8, index_only=name == "indexed")
        assert verify_output(out).ok
        row = quire.PackedDataset(out)[0]
        assert row["input_ids"].tolist() == [1, 2, 3, 4, 5]
        assert row["loss_mask"].tolist() == [True, False, True, True, True]
        assert row["loss_mask"].dtype == bool
        assert not row["loss_mask"].flags.writeable


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([True, False], [1, 0], "has numbers under 'loss_mask', where true and false are needed"),
        ([1, 0], [True, False], "has true or false under 'loss_mask', where integers are needed"),
        ([1, 0], [0.5, 1], "has numbers with a point under 'loss_mask', where integers are needed"),
        ([0.5, 1], ["a", "b"], "has strings under 'loss_mask', where numbers are needed"),
        ([1, 0], [[1], [0]], "has lists under 'loss_mask', where integers are needed"),
    ],
)
def test_a_json_record_with_values_of_another_type_is_a_bad_record(
    tmp_path, first, second, message
):
    records = [{"input_ids": [5, 6], "loss_mask": values} for values in (first, second)]
    corpus = jsonl(tmp_path / "a.jsonl", records)
    with pytest.raises(InvalidDocument, match=f"record 1 .* {message}"):
        pack(corpus, tmp_path / "out", None, pretokenized=True)
    result = pack(corpus, tmp_path / "out", None, pretokenized=True, max_bad_records=1)
    assert result.ledger.documents.emitted == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[[1, 2, 3]]], "list<element: int64>> but lists of numbers are needed; remove the outer "),
        ([[{"a": 1}]], "struct<a: int64>> but lists of numbers are needed; convert it"),
        ([[Decimal("1.5")]], "decimal128.* but lists of numbers are needed; convert it"),
        ([[b"abc"]], "list<element: binary> but lists of numbers are needed; convert it"),
        ([b"abc"], "column '{}' has type binary but lists of numbers are needed; convert it"),
    ],
)
@pytest.mark.parametrize("name", ["input_ids", "weights"])
def test_columns_that_are_not_lists_of_numbers_are_refused_by_type(tmp_path, name, values, message):
    table = pa.table({"input_ids": [[7]], name: values})
    pq.write_table(table, tmp_path / "a.parquet")
    columns = None if name == "input_ids" else ["weights"]
    with pytest.raises(InvalidDocument, match=message.format(name)):
        pack(tmp_path / "a.parquet", tmp_path / "out", None, pretokenized=True, columns=columns)


def test_nested_labels_are_refused_even_if_columns_is_not_set(tmp_path):
    pq.write_table(pa.table({"input_ids": [[7]], "labels": [[[7]]]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidDocument, match="column 'labels' has type list<element: list<"):
        pack(tmp_path / "a.parquet", tmp_path / "out", None, pretokenized=True)


def test_a_missing_token_column_is_an_error_that_lists_the_columns(tmp_path):
    pq.write_table(pa.table({"ids": [b"abc"], "n": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidOption, match=r"'input_ids'; known: ids, n$"):
        pack(tmp_path / "a.parquet", tmp_path / "out", None, pretokenized=True)


EMPTY = {"input_ids": [], "labels": []}


@pytest.mark.parametrize("write", [jsonl, parquet])
def test_8_empty_documents_with_labels_make_an_empty_output(tmp_path, write):
    corpus = write(tmp_path / f"a.{write.__name__}", [EMPTY] * 3)
    with pytest.warns(UserWarning, match="has no rows; documents: 3 read, 3 dropped as empty"):
        pack(corpus, tmp_path / "out", None, pretokenized=True)


def test_8_empty_documents_first_do_not_hide_labels(tmp_path):
    corpus = jsonl(tmp_path / "a.jsonl", [EMPTY] * 120 + [{"input_ids": [5, 6], "labels": [5, 6]}])
    result = pack(corpus, tmp_path / "out", None, pretokenized=True)
    assert result.ledger.documents.dropped == {"empty": 120}
    assert rows(tmp_path / "out")["labels"].to_pylist() == [[5, 6]]


@pytest.mark.parametrize("empty", [jsonl, parquet])
@pytest.mark.parametrize("full", [jsonl, parquet])
def test_a_file_of_empty_documents_gets_the_types_of_the_others(tmp_path, empty, full):
    first = empty(tmp_path / f"a.{empty.__name__}", [EMPTY])
    second = full(tmp_path / f"b.{full.__name__}", [{"input_ids": [5], "labels": [0.5]}])
    pack([first, second], tmp_path / "out", None, pretokenized=True)
    assert rows(tmp_path / "out")["labels"].to_pylist() == [[0.5]]


def test_empty_labels_of_an_empty_document_are_ignored_if_others_have_none(tmp_path):
    corpus = jsonl(tmp_path / "a.jsonl", [EMPTY, {"input_ids": [5, 6]}])
    pack(corpus, tmp_path / "out", None, pretokenized=True)
    assert rows(tmp_path / "out")["input_ids"].to_pylist() == [[5, 6]]


@pytest.mark.parametrize("write", [jsonl, parquet, arrow])
def test_the_column_of_the_tokens_can_be_named(tmp_path, write):
    records = [{"ids": [5, 6], "labels": [5, -100], "input_ids": [9]}, {"ids": [7], "labels": [7]}]
    records[1]["input_ids"] = [9, 9]
    corpus = write(tmp_path / f"a.{write.__name__}", records)
    asked = {"pretokenized": True, "tokens_column": "ids"}
    result = pack(corpus, tmp_path / "out", None, **asked)
    assert result.manifest["options"]["tokens_column"] == "ids"
    assert rows(tmp_path / "out")["input_ids"].to_pylist() == [[5, 6, 7]]
    assert rows(tmp_path / "out")["labels"].to_pylist() == [[5, -100, 7]]
    report = verify_inputs(verify_output(tmp_path / "out"), [corpus], None)
    assert report.ok and report.compared == 2
    with pytest.raises(QuireError, match=r"'idz'"):
        pack(corpus, tmp_path / "other", None, pretokenized=True, tokens_column="idz")


@pytest.mark.parametrize("write", [jsonl, parquet, arrow])
def test_tokens_are_recognised_if_there_is_no_tokenizer(tmp_path, write):
    corpus = write(tmp_path / f"a.{write.__name__}", [{"input_ids": [5, 6]}])
    given = pack(corpus, tmp_path / "given", None, pretokenized=True)
    found = pack(corpus, tmp_path / "found", None)
    assert found.manifest == given.manifest
    found = run("pack", corpus, "--out", tmp_path / "command", "--max-length", 16)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("record", [{"text": "a"}, {"text": "a", "input_ids": [5]}, {"n": 1}])
@pytest.mark.parametrize("write", [jsonl, parquet])
def test_text_needs_a_tokenizer(tmp_path, write, record):
    corpus = write(tmp_path / f"a.{write.__name__}", [record])
    with pytest.raises(InvalidOption, match=r"text needs a tokenizer; .* under 'input_ids' need "):
        pack(corpus, tmp_path / "out", None)


@pytest.mark.parametrize("option", ["truncate_to", "drop_longer_than"])
def test_text_needs_a_tokenizer_whatever_the_options_for_text(tmp_path, option):
    corpus = jsonl(tmp_path / "a.jsonl", [{"text": "a"}])
    with pytest.raises(InvalidOption, match="text needs a tokenizer"):
        pack(corpus, tmp_path / "out", None, **{option: 5})


def test_a_tokenizer_for_a_table_of_tokens_is_an_error_that_names_pretokenized(tmp_path):
    corpus = parquet(tmp_path / "a.parquet", [{"input_ids": [5, 6]}])
    with pytest.raises(
        InvalidOption, match=r"no column 'text', but it has 'input_ids'; .* set pret"
    ):
        pack(corpus, tmp_path / "out")


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_lists_of_only_nulls_are_bad_records(tmp_path, kind):
    masks = pa.array([[None, None], [None], []], kind(pa.null()))
    table = pa.table({"input_ids": [[1, 2], [3], []], "loss_mask": masks})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=2)
    options = {"pretokenized": True, "max_bad_records": 2}
    with pytest.warns(UserWarning, match="3 read, 2 dropped as bad_record, 1 dropped as"):
        pack(tmp_path / "a.arrow", tmp_path / "out", None, **options)
