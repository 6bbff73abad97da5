"""Columns of given tokens: what says which tokens are learnt is kept, or refused, never lost."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quire.errors import InvalidDocument
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


def test_records_that_are_padded_are_bad_ones(tmp_path):
    padded = {"input_ids": [5, 6, 0], "attention_mask": [1, 1, 0]}
    corpus = jsonl(tmp_path / "a.jsonl", [padded, {"input_ids": [7], "attention_mask": [1]}])
    with pytest.raises(InvalidDocument, match="record 0 is padded: its attention_mask has 1 zeros"):
        pack(corpus, tmp_path / "out", None, pretokenized=True)
    result = pack(corpus, tmp_path / "out", None, pretokenized=True, max_bad_records=1)
    assert rows(tmp_path / "out")["input_ids"].to_pylist() == [[7]]
    assert result.ledger.documents.dropped == {"bad_record": 1}
