"""Columns of given tokens: what says which tokens are learnt is kept, or refused, never lost."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quire.errors import InvalidDocument, QuireError
from tests.corpus.corpora import jsonl, pack, rows

BARE, MARKED = {"input_ids": [5, 6]}, {"input_ids": [7, 8], "completion_mask": [0, 1]}


def test_a_completion_mask_goes_along_unasked(tmp_path):
    corpus = jsonl(tmp_path / "a.jsonl", [MARKED])
    pack(corpus, tmp_path / "out", None, pretokenized=True)
    assert rows(tmp_path / "out")["completion_mask"].to_pylist() == [[0, 1]]


@pytest.mark.parametrize("first", [BARE, {**BARE, "completion_mask": None}])
def test_17_a_mask_that_the_first_record_has_not_is_refused(tmp_path, first):
    corpus = jsonl(tmp_path / "a.jsonl", [first, MARKED])
    with pytest.raises(
        InvalidDocument,
        match=r"record 1 .* has 'completion_mask', which the first record of the input has not",
    ):
        pack(corpus, tmp_path / "out", None, pretokenized=True)
    result = pack(corpus, tmp_path / "out", None, pretokenized=True, columns=["input_ids"])
    assert result.ledger.documents.emitted == 2, "who names columns wants no others"


def test_22_a_mask_that_the_first_table_has_not_is_refused(tmp_path):
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
def test_records_that_are_padded_are_bad_ones(tmp_path, write, columns):
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
def test_a_table_of_padded_records_alone_leaves_no_row(tmp_path, write):
    padded = {"input_ids": [5, 0], "attention_mask": [1, 0]}
    corpus = write(tmp_path / f"a.{write.__name__}", [padded])
    asked = {"pretokenized": True, "columns": ["input_ids"], "max_bad_records": 1}
    with pytest.warns(UserWarning, match="holds no row: of 1 documents 1 left out as bad_record"):
        pack(corpus, tmp_path / "out", None, **asked)


@pytest.mark.parametrize(
    ("name", "values"), [("input_ids", [3.7, 4]), ("labels", [3, 3.0]), ("weight", [0.5, 1])]
)
def test_fractions_where_the_first_record_has_integers_are_not_cut_off(tmp_path, name, values):
    first = {"input_ids": [1, 2], "labels": [1, 2], "weight": [1, 1]}
    corpus = jsonl(tmp_path / "a.jsonl", [first, {**first, name: values}])
    asked = {"pretokenized": True, "columns": ["labels", "weight"]}
    with pytest.raises(InvalidDocument, match=rf"record 1 .* with a point under '{name}', where"):
        pack(corpus, tmp_path / "out", None, **asked)
    pack(corpus, tmp_path / "out", None, **asked, max_bad_records=1)
    assert rows(tmp_path / "out")["weight"].to_pylist() == [[1, 1]]


def test_integers_where_the_first_record_has_fractions_become_such(tmp_path):
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
