"""Rows of a dataset in a store: only requested shards are downloaded, once per machine."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from pathlib import Path

import fsspec
import numpy as np
import pytest

from quire.errors import CorruptFile, InvalidOption, InvalidState, OutputError, StorageError
from quire.packed import PackedDataset
from tests.corpus.corpora import jsonl, pack, texts
from tests.storage.reading import read_all

SHARDS = 8


@pytest.fixture
def local(tmp_path):
    corpus = jsonl(tmp_path / "corpus.jsonl", [f"{number:03d} {'x' * 40}" for number in range(256)])
    pack(
        corpus, tmp_path / "out", max_length=64, partition_size=-(-corpus.stat().st_size // SHARDS)
    )
    dataset = PackedDataset(tmp_path / "out")
    assert len(dataset.manifest["shards"]) == SHARDS
    return dataset


@pytest.fixture
def uri(local, bucket, client, store):
    """The same output in a store."""
    for path in Path(local.path).rglob("*"):
        name = path.relative_to(local.path).as_posix()
        if path.is_file() and not name.startswith(".mapped"):
            client.put_object(Bucket=bucket, Key=f"out/{name}", Body=path.read_bytes())
    store.requests.clear()
    return f"s3://{bucket}/out"


def fetched(store) -> set[str]:
    return {request.path.rpartition("/")[2] for request in store.reads("/data/")}


def same(row, other):
    assert row.keys() == other.keys()
    assert all(np.array_equal(row[name], other[name]) for name in row)


def test_rows_are_those_of_the_local_dataset(local, uri):
    there = PackedDataset(uri)
    assert len(there) == len(local)
    assert (there.fingerprint, there.max_length) == (local.fingerprint, local.max_length)
    assert (there.columns, there.ledger) == (local.columns, local.ledger)
    for row in range(len(local)):
        same(there[row], local[row])
    same(there[-1], local[-1])
    with pytest.raises(IndexError):
        there[len(local)]


def test_opening_reads_only_the_manifest(uri, store):
    dataset = PackedDataset(uri)
    assert len(dataset) > 100 and dataset.columns == ["input_ids", "document_starts"]
    assert {request.path.rpartition("/")[2] for request in store.requests} == {"manifest.json"}


def test_a_shard_is_fetched_once_for_all_its_rows(uri, store):
    dataset = PackedDataset(uri)
    for _ in range(2):
        dataset[0]
    assert fetched(store) == {"shard-00000-000.parquet"}
    assert len(store.reads("/data/")) == 1
    PackedDataset(uri)[1]
    pickle.loads(pickle.dumps(dataset))[2]  # noqa: S301 - our own
    assert len(store.reads("/data/")) == 1


def test_shards_can_be_fetched_ahead(uri, store):
    dataset = PackedDataset(uri)
    assert dataset.fetch([0, 1, len(dataset) - 1]) == 2
    assert fetched(store) == {"shard-00000-000.parquet", f"shard-0000{SHARDS - 1}-000.parquet"}
    assert dataset.fetch() == SHARDS
    store.requests.clear()
    list(dataset)
    assert not store.requests


def test_a_rank_fetches_only_shards_of_its_rows(local, uri, store, tmp_path):
    for world in (1, 2, 4):
        for rank in range(world):
            store.requests.clear()
            dataset = PackedDataset(uri, cache_dir=tmp_path / f"cache-{world}-{rank}")
            loader = dataset.loader(4, rank=rank, world_size=world, sharded=True)
            assert sum(len(batch) for batch in loader) == len(local) // 4 * 4 // world
            assert len(fetched(store)) <= SHARDS // world + 1


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_sharded_sequence_is_the_same_for_every_world_size(local, shuffle):
    def sequence(world):
        options = {"world_size": world, "sharded": True, "shuffle": shuffle, "epoch": 3}
        loaders = [local.loader(12, rank=rank, **options) for rank in range(world)]
        steps = range(loaders[0].steps_per_epoch)
        return [[row for one in loaders for row in one.rows(3, s).tolist()] for s in steps]

    first = sequence(1)
    everything = sorted(row for step in first for row in step)
    assert len(set(everything)) == len(everything) == len(local) // 12 * 12
    for world in (2, 3, 4, 6, 12):
        assert sequence(world) == first


def test_rows_that_a_sharded_epoch_leaves_out_appear_in_another(local):
    loader = local.loader(20, sharded=True)
    assert loader.num_left_over
    seen = set()
    for epoch in range(12):
        seen |= {row for s in range(loader.steps_per_epoch) for row in loader.rows(epoch, s)}
    assert len(seen) > len(local) - loader.num_left_over


def test_a_sharded_state_belongs_to_a_sharded_loader(local):
    sharded, plain = local.loader(4, sharded=True), local.loader(4)
    for one, other in ((sharded, plain), (plain, sharded)):
        with pytest.raises(InvalidState, match="sharded is"):
            other.load_state_dict(one.state_dict())
    next(iter(sharded))
    again = local.loader(4, sharded=True)
    again.load_state_dict(sharded.state_dict())
    assert (again.epoch, again.step) == (0, 1)


def test_balance_and_sharded_exclude_each_other(local):
    with pytest.raises(InvalidOption, match="leave one of them out"):
        local.loader(4, sharded=True, balance=True)


def test_fault_49_other_bytes_than_were_packed_are_an_error(uri, bucket, client, tmp_path):
    key = "out/data/shard-00001-000.parquet"
    good = client.get_object(Bucket=bucket, Key=key)["Body"].read()
    client.put_object(Bucket=bucket, Key=key, Body=good[:100] + b"\0" + good[101:])
    dataset = PackedDataset(uri)
    row = len(dataset) * 3 // 16
    with pytest.raises(CorruptFile, match=rf"{uri}/data/shard-00001-000.parquet has other bytes"):
        dataset[row]
    client.put_object(Bucket=bucket, Key=key, Body=good)
    assert len(dataset[row]["input_ids"])
    left = [path.name for path in (tmp_path.parent / "cache").rglob("*") if path.is_file()]
    assert all(name.endswith((".arrow", ".lock")) for name in left)


def test_a_cached_shard_that_is_damaged_is_fetched_again(local, uri, tmp_path):
    PackedDataset(uri, cache_dir=tmp_path / "kept")[0]
    (kept,) = (tmp_path / "kept").glob("*.arrow")
    kept.write_bytes(kept.read_bytes()[:50])
    same(PackedDataset(uri, cache_dir=tmp_path / "kept")[0], local[0])


def test_a_cached_shard_with_a_flipped_byte_is_fetched_again(local, uri, tmp_path):
    tokens = PackedDataset(uri, cache_dir=tmp_path / "kept")[0]["input_ids"].tobytes()
    (kept,) = (tmp_path / "kept").glob("*.arrow")
    data = bytearray(kept.read_bytes())
    data[data.index(tokens)] ^= 1
    kept.write_bytes(data)
    same(PackedDataset(uri, cache_dir=tmp_path / "kept")[0], local[0])


def test_a_missing_shard_or_dataset_is_named(uri, bucket, client):
    client.delete_object(Bucket=bucket, Key="out/data/shard-00000-000.parquet")
    missing = rf"{uri}/data/shard-00000-000\.parquet is missing; the manifest names it"
    with pytest.raises(CorruptFile, match=missing):
        PackedDataset(uri)[0]
    with pytest.raises(InvalidOption, match=r"none has no manifest\.json"):
        PackedDataset(f"s3://{bucket}/none")
    with pytest.raises(StorageError, match="there is no bucket 'not-a-bucket'"):
        PackedDataset("s3://not-a-bucket/none")


def test_a_failing_store_leaves_nothing_incomplete_in_the_cache(local, uri, store, tmp_path):
    dataset = PackedDataset(uri, cache_dir=tmp_path / "kept")
    store.failing = lambda request: 403 if "/data/" in request.path else None
    with pytest.raises(StorageError, match="denies access"):
        dataset[0]
    store.failing = lambda request: None
    same(dataset[0], local[0])


def test_a_cache_that_cannot_be_written_is_named(uri, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OutputError, match="cache_dir="):
        PackedDataset(uri, cache_dir=tmp_path / "file" / "below")[0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_a_machine_share_the_cache(local, uri, store, tmp_path, method):
    PackedDataset(uri, cache_dir=tmp_path / "other")[0]  # the store was used before the fork
    store.requests.clear()
    context = multiprocessing.get_context(method)
    found = context.Queue()
    several = [
        context.Process(target=read_all, args=(uri, tmp_path / "kept", found)) for _ in range(2)
    ]
    for process in several:
        process.start()
    results = [found.get(timeout=120) for _ in several]
    for process in several:
        process.join()
    assert results[0] == results[1] == [row["input_ids"].tolist() for row in local]
    assert len(store.reads("/data/")) == SHARDS


def test_torch_workers_read_from_a_store(local, uri):
    import torch

    loader = PackedDataset(uri).loader(4, shuffle=False)
    batches = torch.utils.data.DataLoader(loader.torch(), batch_size=None, num_workers=2)
    rows = [row["input_ids"].tolist() for batch in batches for row in batch]
    assert rows == [row["input_ids"].tolist() for row in local][: len(rows)]


def test_plans_are_read_from_a_store(tmp_path, bucket):
    corpus = jsonl(tmp_path / "corpus.jsonl", texts(100))
    rows = []
    for out in (tmp_path / "out", f"s3://{bucket}/out"):
        pack(corpus, out, index_only=True, partition_size=1000)
        rows.append(PackedDataset(out))
    assert rows[0].plan == rows[1].plan == "exact_fit-16"
    assert len(rows[0]) == len(rows[1]) > 10
    for number in range(len(rows[0])):
        same(rows[0][number], rows[1][number])


def test_columns_are_known_without_reading_a_shard(tmp_path, bucket, store):
    records = [{"input_ids": [1, 2, 3], "labels": [-100, 2, 3], "weight": [0.5, 1.0, 1.0]}] * 5
    corpus = jsonl(tmp_path / "corpus.jsonl", records)
    options = {"pretokenized": True, "columns": ["labels", "weight"], "keep_sources": False}
    pack(corpus, f"s3://{bucket}/out", tokenizer=None, **options)
    dataset = PackedDataset(f"s3://{bucket}/out")
    assert dataset.columns == ["input_ids", "labels", "weight", "document_starts"]
    assert dataset[0]["weight"].tolist()[:3] == [0.5, 1.0, 1.0]
    with pytest.raises(InvalidOption, match="unknown column 'no'"):
        PackedDataset(f"s3://{bucket}/out", columns=["no"])


def test_a_dataset_is_read_from_an_fsspec_file_system(local, tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(local.path), "/packed-of-fsspec/out", recursive=True)
    same(PackedDataset("memory://packed-of-fsspec/out")[3], local[3])


@pytest.mark.parametrize("digest", ["../../outside", "/outside", "ab", "A" * 64, 5])
def test_fault_52_a_digest_that_is_a_path_is_refused(tmp_path, digest):
    """Shards are kept under their digests, which must not lead out of the cache."""
    jsonl(tmp_path / "corpus.jsonl", texts(20))
    pack(tmp_path / "corpus.jsonl", "memory://digests/out")
    memory = fsspec.filesystem("memory")
    manifest = json.loads(memory.cat("/digests/out/manifest.json"))
    manifest["shards"][0]["sha256"] = digest
    memory.pipe("/digests/out/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(CorruptFile, match="64 hexadecimal digits"):
        PackedDataset("memory://digests/out", cache_dir=tmp_path / "a" / "cache")[0]
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]
    memory.rm("/digests", recursive=True)
