"""A corpus is packed into a store: the bytes of a local output, even after faults."""

from __future__ import annotations

import json
from dataclasses import replace

import fsspec
import pytest

from quire.corpus import replan
from quire.corpus.engines.local import LocalEngine
from quire.errors import InvalidOption, OutputError, StorageError, WorkerError
from quire.storage import as_path, stores
from tests.corpus.corpora import hashes, jsonl, pack, texts
from tests.storage.conftest import KEYS
from tests.storage.server import Store

BAD = "not JSON at all"


def files(out) -> dict[str, bytes]:
    """Every file of a local output."""
    found = (path for path in out.rglob("*") if path.is_file())
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in found}


@pytest.fixture
def corpus(tmp_path):
    path = jsonl(tmp_path / "corpus.jsonl", texts(200))
    with path.open("a") as file:
        file.write(f"{BAD}\n")
    return path


OPTIONS = {"partition_size": 1500, "max_bad_records": 1}


@pytest.mark.parametrize("index_only", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_objects_are_the_files_of_a_local_output(
    tmp_path, bucket, objects, corpus, workers, index_only
):
    local = pack(corpus, tmp_path / "out", index_only=index_only, **OPTIONS)
    there = pack(corpus, f"s3://{bucket}/a/out", index_only=index_only, workers=workers, **OPTIONS)
    assert objects("a/out/") == files(tmp_path / "out")
    assert len(there.manifest["shards"]) > 3 and there.ledger == local.ledger
    assert str(there.path) == f"s3://{bucket}/a/out"
    assert "bad_records.jsonl" in objects("a/out/")


def test_an_fsspec_file_system_holds_the_same_files(tmp_path, corpus):
    pack(corpus, tmp_path / "out", **OPTIONS)
    pack(corpus, "memory://outputs/out", **OPTIONS)
    memory = fsspec.filesystem("memory")
    found = {
        name.removeprefix("/outputs/out/"): memory.cat(name) for name in memory.find("/outputs")
    }
    assert found == files(tmp_path / "out")


def test_an_existing_output_is_not_overwritten(bucket, objects, corpus):
    pack(corpus, f"s3://{bucket}/out", **OPTIONS)
    before = objects()
    with pytest.raises(OutputError, match="already holds a packed dataset"):
        pack(corpus, f"s3://{bucket}/out", **OPTIONS)
    with pytest.raises(OutputError, match=r"begun with other .*: options\.seed is 0"):
        pack(corpus, f"s3://{bucket}/out", resume=True, seed=1, **OPTIONS)
    assert pack(corpus, f"s3://{bucket}/out", resume=True, **OPTIONS).was_complete
    assert objects() == before


def test_a_folder_that_was_not_written_by_quire_is_not_changed(bucket, client, objects, corpus):
    client.put_object(Bucket=bucket, Key="out/theirs.txt", Body=b"1")
    for resume in (False, True):
        with pytest.raises(OutputError, match="choose a new output"):
            pack(corpus, f"s3://{bucket}/out", resume=resume, **OPTIONS)
    assert objects() == {"out/theirs.txt": b"1"}


def test_an_output_inside_an_input_is_refused(bucket, client, corpus):
    client.put_object(Bucket=bucket, Key="in/a.jsonl", Body=corpus.read_bytes())
    with pytest.raises(InvalidOption, match="is inside the input"):
        pack(f"s3://{bucket}/in", f"s3://{bucket}/in/out", **OPTIONS)


def failing_after(store, count, status, kinds=("PUT", "POST", "DELETE")):
    """Every change fails after this many were made."""
    made = []

    def fail(request):
        if request.method not in kinds:
            return None
        made.append(request)
        return status if len(made) > count else None

    store.failing = fail


@pytest.mark.parametrize("status", [403, 500])
def test_fault_39_a_store_that_fails_in_the_middle_loses_nothing(
    tmp_path, bucket, store, objects, corpus, status
):
    pack(corpus, tmp_path / "out", **OPTIONS)
    uri = f"s3://{bucket}/out"
    for count in (1, 2, 3, 4, 2, 1, 3):
        failing_after(store, count, status)
        with pytest.raises(OutputError) as caught:
            pack(corpus, uri, resume=True, **OPTIONS)
        first, second = str(caught.value).split("\n")
        assert first.startswith(uri) and "committed shards are kept" in first
        assert second.endswith("then resume")
        store.failing = lambda request: None
        held = [name for name in objects("out/") if name.startswith(".quire/shard")]
    assert len(held) > 3
    store.requests.clear()
    pack(corpus, uri, resume=True, **OPTIONS)
    assert not store.reads("/data/"), "shards that stand are not read again"
    assert objects("out/") == files(tmp_path / "out")


def test_fault_40_an_output_without_permission_is_refused_before_any_work(
    bucket, store, objects, corpus
):
    failing_after(store, 0, 403)
    seen = []
    with pytest.raises(OutputError, match="denies access"):
        pack(corpus, f"s3://{bucket}/out", on_progress=seen.append, **OPTIONS)
    assert not seen


def test_an_output_in_a_missing_bucket_is_refused_before_any_work(store, corpus):
    seen = []
    with pytest.raises(OutputError, match="there is no bucket 'nowhere-at-all'"):
        pack(corpus, "s3://nowhere-at-all/out", on_progress=seen.append, **OPTIONS)
    assert not seen


def test_a_shard_of_another_size_than_committed_is_made_again(
    tmp_path, bucket, client, store, objects, corpus
):
    pack(corpus, tmp_path / "out", **OPTIONS)
    failing_after(store, 9, 403)
    with pytest.raises(OutputError):
        pack(corpus, f"s3://{bucket}/out", **OPTIONS)
    store.failing = lambda request: None
    client.put_object(Bucket=bucket, Key="out/data/shard-00000-000.parquet", Body=b"half")
    client.delete_object(Bucket=bucket, Key="out/data/shard-00001-000.parquet")
    client.put_object(Bucket=bucket, Key="out/.quire/shard-00002-000.parquet.json", Body=b"{")
    pack(corpus, f"s3://{bucket}/out", resume=True, **OPTIONS)
    assert objects("out/") == files(tmp_path / "out")


def test_two_writers_with_the_same_options_leave_one_output(tmp_path, bucket, objects, corpus):
    pack(corpus, tmp_path / "out", **OPTIONS)
    uri, inner = f"s3://{bucket}/out", []

    def pack_beside(progress):
        if progress.commit is not None and not inner:
            inner.append(pack(corpus, uri, resume=True, **OPTIONS))

    pack(corpus, uri, on_progress=pack_beside, **OPTIONS)
    assert inner and objects("out/") == files(tmp_path / "out")


def test_a_writer_that_finds_another_run_at_its_end_writes_no_manifest(
    bucket, client, objects, corpus
):
    uri = f"s3://{bucket}/out"

    def begin_anew(progress):
        if progress.commit is None or progress.commit.partition != 3:
            return
        run = json.loads(objects()["out/.quire/run.json"])
        run["options"]["seed"] = 7
        client.put_object(Bucket=bucket, Key="out/.quire/run.json", Body=json.dumps(run).encode())

    with pytest.raises(OutputError, match=r"options\.seed is 7 there and 0 here"):
        pack(corpus, uri, on_progress=begin_anew, **OPTIONS)
    assert "out/manifest.json" not in objects()


def test_replanning_in_a_store_gives_the_plans_of_a_local_output(
    tmp_path, bucket, store, objects, corpus
):
    for out in (tmp_path / "out", f"s3://{bucket}/out"):
        pack(corpus, out, index_only=True, **OPTIONS)
        store.requests.clear()
        assert replan(out, max_length=32).plan == "exact_fit-32"
        assert replan(out, max_length=32).was_complete
    assert objects("out/") == files(tmp_path / "out")


def test_keys_of_a_uri_appear_in_no_object_or_error(store, bucket, objects, corpus):
    uri = f"s3://AKIAMYKEY:my-very-secret@{bucket}/out"
    pack(corpus, uri, **OPTIONS)
    everything = b"".join(objects().values()) + "".join(objects()).encode()
    assert b"AKIAMYKEY" not in everything and b"my-very-secret" not in everything
    for options in ({}, {"resume": True, "seed": 1}):
        with pytest.raises(OutputError) as caught:
            pack(corpus, uri, **OPTIONS, **options)
        assert "my-very-secret" not in str(caught.value) and "AKIAMYKEY" not in str(caught.value)


def test_nothing_is_left_in_the_temporary_folder(tmp_path, bucket, store, corpus, monkeypatch):
    import tempfile

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    failing_after(store, 3, 403)
    with pytest.raises(OutputError):
        pack(corpus, f"s3://{bucket}/out", **OPTIONS)
    store.failing = lambda request: None
    pack(corpus, f"s3://{bucket}/out", resume=True, **OPTIONS)
    assert hashes(tmp_path / "tmp") == {}


def test_a_local_output_given_as_a_file_uri_is_a_local_output(tmp_path, corpus):
    pack(corpus, tmp_path / "one", **OPTIONS)
    pack(f"file://{corpus}", f"file://{tmp_path}/two", **OPTIONS)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert as_path(f"file://{tmp_path}/two") == tmp_path / "two"


def test_a_store_that_goes_away_while_inputs_are_read_loses_nothing(
    tmp_path, bucket, client, store, objects
):
    for number in range(6):
        data = jsonl(tmp_path / "one.jsonl", texts(40, number)).read_bytes()
        client.put_object(Bucket=bucket, Key=f"in/{number}.jsonl", Body=data)
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.jsonl").write_bytes(data)
    pack(tmp_path / "in", tmp_path / "out", partition_size=5000)
    uri = f"s3://{bucket}/out"
    reads = []

    def fail(request):
        if request.range and request.path.endswith("3.jsonl"):
            reads.append(request)
        return 500 if len(reads) > 1 else None  # the fingerprint is read, the documents are not

    store.failing = fail
    with pytest.raises(StorageError, match=r"3.jsonl: the store failed"):
        pack(f"s3://{bucket}/in", uri, partition_size=5000)
    store.failing = lambda request: None
    assert sum(name.startswith(".quire/shard") for name in objects("out/")) == 1
    pack(f"s3://{bucket}/in", uri, partition_size=5000, resume=True)
    assert objects("out/") == files(tmp_path / "out")


def test_a_server_that_is_stopped_in_the_middle_loses_nothing(
    tmp_path, bucket, objects, corpus, monkeypatch
):
    pack(corpus, tmp_path / "out", **OPTIONS)
    other = Store()  # of the same buckets
    other.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", other.endpoint)
    stores._opened.cache_clear()
    commits = []

    def stop(progress):
        if progress.commit is not None:
            commits.append(progress.commit)
            if len(commits) == 2:
                other.stop()

    with pytest.raises(OutputError, match="cannot be reached") as caught:
        pack(corpus, f"s3://{bucket}/out", on_progress=stop, **OPTIONS)
    assert str(caught.value).endswith("then resume")
    monkeypatch.undo()
    again = Store()
    again.start()
    for name, value in (KEYS | {"AWS_ENDPOINT_URL": again.endpoint}).items():
        monkeypatch.setenv(name, value)
    stores._opened.cache_clear()
    seen = []
    pack(corpus, f"s3://{bucket}/out", resume=True, on_start=seen.append, **OPTIONS)
    again.stop()
    assert seen[0].resumed == 2
    assert objects("out/") == files(tmp_path / "out")


def test_temporary_files_are_swept_where_files_are_renamed(tmp_path, corpus):
    pack(corpus, tmp_path / "out", **OPTIONS)
    out = "memory://sweeping/out"

    def stop(progress):
        if progress.commit is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(corpus, out, on_progress=stop, **OPTIONS)
    memory = fsspec.filesystem("memory")
    for folder in ("", "data/", ".quire/"):
        memory.pipe(f"/sweeping/out/{folder}.shard.parquet.quire-transfer-x.tmp", b"half")
    pack(corpus, out, resume=True, **OPTIONS)
    names = [name.removeprefix("/sweeping/out/") for name in memory.find("/sweeping/out")]
    assert sorted(names) == sorted(files(tmp_path / "out"))


def test_no_manifest_is_written_if_workers_see_another_store(corpus):
    """Every process has its own memory, so what workers store there is lost with them."""
    with pytest.raises(WorkerError, match="all workers see under the same path") as caught:
        pack(corpus, "memory://apart/out", workers=2, **OPTIONS)
    assert "memory://apart/out" in str(caught.value)
    assert not as_path("memory://apart/out/manifest.json").exists()


def test_no_manifest_is_written_if_workers_see_another_folder(tmp_path, corpus):
    class Elsewhere(LocalEngine):
        def run(self, job, partitions, report):
            other = tmp_path / "other"
            (other / job.work.name).mkdir(parents=True)
            (other / "data").mkdir()
            super().run(replace(job, out=other, work=other / job.work.name), partitions, report)

    with pytest.raises(WorkerError, match="all workers see under the same path"):
        pack(corpus, tmp_path / "out", engine=Elsewhere(), **OPTIONS)
    assert not (tmp_path / "out" / "manifest.json").exists()
    pack(corpus, tmp_path / "out", resume=True, **OPTIONS)
    assert (tmp_path / "out" / "manifest.json").exists()
