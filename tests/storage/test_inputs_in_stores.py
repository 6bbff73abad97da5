"""A corpus is packed from a store as it is from a disk."""

from __future__ import annotations

import os

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from quire.corpus.corpus import Corpus
from quire.corpus.inputs import find_inputs, read_span
from quire.corpus.options import CorpusOptions
from quire.corpus.partitions import make_partitions
from quire.errors import CorruptFile, InvalidOption, SourceChanged, StorageError
from quire.formats.format import Span
from tests.corpus.corpora import hashes, pack, texts
from tests.storage.kinds import every_kind, lines, put_all


def names(*named):
    return [file.name for file in find_inputs(named)]


@pytest.fixture
def put(client, bucket):
    def put(key: str, data: bytes) -> str:
        client.put_object(Bucket=bucket, Key=key, Body=data)
        return f"s3://{bucket}/{key}"

    return put


@pytest.mark.parametrize("workers", [1, 2])
def test_every_kind_of_file_gives_the_bytes_that_it_gives_on_a_disk(
    tmp_path, bucket, client, workers
):
    folder = every_kind(tmp_path / "corpus")
    uri = put_all(client, bucket, folder, "in/corpus")
    pack(folder, tmp_path / "local", partition_size=3000)
    pack(uri, tmp_path / "remote", partition_size=3000, workers=workers)
    assert hashes(tmp_path / "remote") == hashes(tmp_path / "local")


def test_inputs_are_read_from_an_fsspec_file_system(tmp_path):
    folder = every_kind(tmp_path / "corpus")
    fsspec.filesystem("memory").put(str(folder), "/inputs-of-fsspec/corpus", recursive=True)
    pack(folder, tmp_path / "local")
    pack("memory://inputs-of-fsspec/corpus", tmp_path / "remote")
    assert hashes(tmp_path / "remote") == hashes(tmp_path / "local")


def test_globs_match_as_they_do_on_a_disk(tmp_path, bucket, client):
    for name in ("a.jsonl", "b1.jsonl", "b2.jsonl", "x/c.jsonl", "x/y/d.jsonl", ".h.jsonl", "n[1]"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines(["abc", name]))
    (tmp_path / "in" / "n[1]").rename(tmp_path / "in" / "n[1].jsonl")
    uri = put_all(client, bucket, tmp_path / "in", "some/in")
    for pattern in (
        "*.jsonl",
        "b?.jsonl",
        "b[12].jsonl",
        "*/*.jsonl",
        "**/*.jsonl",
        "x/**/*.jsonl",
    ):
        assert names(f"{uri}/{pattern}") == names(f"{tmp_path}/in/{pattern}"), pattern
    assert names(uri) == names(tmp_path / "in")
    assert names(f"{uri}/n[1].jsonl") == ["n[1].jsonl"]
    with pytest.raises(InvalidOption, match=r"no file matches 's3://.*\*.parquet'"):
        names(f"{uri}/*.parquet")


def test_a_glob_lists_only_folders_that_can_match(bucket, store, put):
    for folder in range(20):
        put(f"in/{folder}/deep/a.jsonl", lines(["abc"]))
    put("in/top.jsonl", lines(["abc"]))
    store.requests.clear()
    assert names(f"s3://{bucket}/in/*.jsonl") == ["top.jsonl"]
    assert sum("list-type" in request.query for request in store.requests) <= 3


def test_the_same_object_twice_is_an_error(put):
    uri = put("a.jsonl", lines(["abc"]))
    with pytest.raises(InvalidOption, match="same file"):
        names(uri, f"{uri}?region=us-east-1")


def test_missing_objects_and_buckets_are_distinguished(bucket, store):
    with pytest.raises(InvalidOption, match=f"there is no file or folder s3://{bucket}/none"):
        names(f"s3://{bucket}/none")
    with pytest.raises(StorageError, match="there is no bucket 'no-bucket-here'"):
        names("s3://no-bucket-here/none")


def test_fault_23_an_object_that_changes_during_the_run_is_an_error(put):
    (file,) = find_inputs([put("a.jsonl", lines(["abc"]))])
    put("a.jsonl", lines(["abc", "def"]))
    with pytest.raises(SourceChanged, match=r"s3://.*a.jsonl changed during the run"):
        file.require_unchanged()


def test_fault_20_a_damaged_parquet_object_is_an_error_of_the_file(put, tmp_path):
    uri = put("a.parquet", b"PAR1 and nothing else PAR1")
    with pytest.raises(CorruptFile, match=r"s3://.*a.parquet cannot be read as parquet"):
        pack(uri, tmp_path / "out")


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "jsonl.zst", "parquet", "arrow", "txt"])
@pytest.mark.parametrize("status", [403, 500])
def test_fault_48_a_store_that_fails_while_it_is_read_is_not_a_damaged_file(
    tmp_path, bucket, client, store, kind, status
):
    folder = every_kind(tmp_path / "corpus")
    uri = put_all(client, bucket, folder, "in")
    (file,) = [path for path in folder.iterdir() if path.name.endswith(f".{kind}")]
    (found,) = find_inputs([f"{uri}/{file.name}"])
    store.failing = lambda request: status if request.range else None
    whole = Span(file=0, start=0, stop=None, first_record=0, size=1)
    with pytest.raises(StorageError) as caught:
        list(read_span(found, whole, CorpusOptions(max_length=16), {}))
    assert f"{uri}/{file.name}: the store" in str(caught.value)


def test_columns_that_are_not_packed_are_not_read(tmp_path, bucket, store, put):
    noise = pa.array([os.urandom(40_000) for _ in range(100)])
    table = pa.table({"noise": noise, "text": texts(100)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=25, compression="none")
    size = (tmp_path / "a.parquet").stat().st_size
    uri = put("a.parquet", (tmp_path / "a.parquet").read_bytes())
    store.requests.clear()
    pack(uri, tmp_path / "out")
    assert store.bytes_read("a.parquet") < size / 2  # most of it for the fingerprint: 16 x 64 KiB


def test_a_partition_reads_its_part_of_the_file(tmp_path, bucket, store, put):
    uri = put("a.jsonl", lines(["x" * 1000] * 30_000))
    files = find_inputs([uri])
    options = CorpusOptions(max_length=16, partition_size=3_000_000)
    corpus = Corpus(files=files, options=options, columns={})
    partitions = make_partitions(corpus)
    assert len(partitions) == 11
    store.requests.clear()
    batches = corpus.batches(partitions[5].spans)
    assert sum(len(batch.records) for batch in batches) > 2000
    assert store.bytes_read("a.jsonl") < 9_000_000


@pytest.mark.parametrize("named", ["s3://AKIAIOSF:wJalr@bucket/a", "/corpus/a.jsonl"])
def test_one_path_instead_of_a_list_is_an_error_without_its_keys(named, tmp_path):
    with pytest.raises(InvalidOption, match="must be a list of paths") as caught:
        quire.pack_corpus(named, tmp_path / "packed", "byte", max_length=8)
    assert "wJalr" not in str(caught.value)


def test_a_tokenizer_in_a_store_is_refused_without_its_keys(tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    with pytest.raises(InvalidOption, match=r"s3://bucket/tokenizer\.json is in a store") as caught:
        pack(tmp_path / "a.txt", tmp_path / "out", "s3://AKIAIOSF:wJalr@bucket/tokenizer.json")
    assert "wJalr" not in str(caught.value)
