"""Shards of documents, as far as planning reads them: lengths, ids, labels."""

from __future__ import annotations

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quire.corpus.index import DocumentShard
from quire.errors import CorruptFile, StorageError
from quire.ledger import Ledger, Tally, TokenTally
from quire.storage import RemotePath, as_path

LEDGER = Ledger(documents=Tally(input=2, emitted=2), tokens=TokenTally(input=5, emitted=5))
TABLE = pa.table(
    {
        "document_id": [4, 9],
        "length": [3, 2],
        "input_ids": [[1, 2, 3], [4, 5]],
        "labels": [[-100, 2, 3], [-100, 5]],
    }
)
ENTRY = {"file": "data/a.parquet", "documents": 2, "tokens": 5, "ledger": LEDGER.to_dict()}


@pytest.fixture
def out(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(TABLE, tmp_path / "data" / "a.parquet", row_group_size=1)
    return tmp_path


def test_a_shard_is_described_by_its_entry_of_the_manifest(tmp_path):
    shard = DocumentShard(
        path=tmp_path / "data" / "shard-00003-001.parquet", documents=2, tokens=5, ledger=LEDGER
    )
    entry = {**ENTRY, "file": "data/shard-00003-001.parquet"}
    assert DocumentShard.of_manifest(tmp_path, entry) == shard


def test_lengths_ids_and_labels_are_those_of_every_document(out):
    shard = DocumentShard.of_manifest(out, ENTRY)
    assert shard.lengths().tolist() == [3, 2]
    assert shard.ids().tolist() == [4, 9]
    documents = shard.labelled()
    assert documents.columns["labels"].to_pylist() == [-100, 2, 3, -100, 5]
    assert documents.offsets.tolist() == [0, 3]
    assert documents.lengths.tolist() == [3, 2]
    assert documents.numbers.tolist() == [0, 1]


def test_a_shard_in_a_store_is_read_as_one_on_a_disk(out):
    fsspec.filesystem("memory").pipe(
        "/document-shards/data/a.parquet", (out / "data" / "a.parquet").read_bytes()
    )
    shard = DocumentShard.of_manifest(as_path("memory://document-shards"), ENTRY)
    assert shard.lengths().tolist() == [3, 2]
    fsspec.filesystem("memory").rm("/document-shards", recursive=True)


@pytest.mark.parametrize("said", [{"documents": 3}, {"tokens": 6}])
def test_a_shard_that_holds_something_else_is_corrupt(out, said):
    shard = DocumentShard.of_manifest(out, ENTRY | said)
    with pytest.raises(CorruptFile) as raised:
        shard.lengths()
    counts = ENTRY | said
    assert str(raised.value) == (
        f"{out}/data/a.parquet has 2 documents with 5 tokens, but the manifest says "
        f"{counts['documents']} with {counts['tokens']}; pack it again"
    )


@pytest.mark.parametrize("damage", [b"", b"PAR1", None])
def test_a_shard_that_cannot_be_read_is_corrupt(out, damage):
    if damage is None:
        (out / "data" / "a.parquet").unlink()
    else:
        (out / "data" / "a.parquet").write_bytes(damage)
    shard = DocumentShard.of_manifest(out, ENTRY)
    with pytest.raises(CorruptFile, match=r"a\.parquet cannot be read: .*; pack it again$"):
        shard.ids()


def test_a_damaged_shard_in_a_store_is_corrupt_and_a_store_that_fails_is_not(monkeypatch):
    fsspec.filesystem("memory").pipe("/damaged-shards/data/a.parquet", b"PAR1")
    shard = DocumentShard.of_manifest(as_path("memory://damaged-shards"), ENTRY)
    with pytest.raises(CorruptFile, match=r"a\.parquet cannot be read: .*; pack it again$"):
        shard.ids()
    fsspec.filesystem("memory").rm("/damaged-shards", recursive=True)

    def fail(path):
        raise ConnectionError("gone")

    monkeypatch.setattr(RemotePath, "arrow_file", fail)
    with pytest.raises(StorageError, match="the store cannot be reached"):
        shard.ids()
