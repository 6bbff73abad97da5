"""Paths in a store behave as local ones do, as far as quire uses them."""

from __future__ import annotations

import fcntl
import os
import pickle
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from quire.errors import InvalidOption, MissingDependency, StorageError
from quire.files import whole_file
from quire.storage import RemotePath, as_path, local_copy, stores, sweep_scratch
from quire.storage.transfers import scratch_folder
from tests.storage.server import CUT

ATTEMPTS = stores._ATTEMPTS
SECRET = "wJalrXUtnFEMI%2FK7MDENG"  # noqa: S105 - of nobody


def put(path, data):
    with whole_file(path) as local:
        local.write_bytes(data)


@pytest.fixture(params=["s3", "memory"])
def folder(request, bucket):
    if request.param == "s3":
        return as_path(f"s3://{bucket}/some/folder")
    return as_path(f"memory://{bucket}/some/folder")


@pytest.mark.parametrize("named", ["a/b.jsonl", "/a", "C:/a", "a:b", "part-?.jsonl", "s3:/a"])
def test_a_string_that_is_not_a_uri_is_a_local_path(named):
    assert as_path(named) == Path(named)


def test_a_file_uri_is_a_local_path():
    assert as_path("file:///a%20b/c") == Path("/a b/c")
    with pytest.raises(InvalidOption, match="names the host 'a'"):
        as_path("file://a/b")


def test_text_shows_neither_keys_nor_options():
    path = as_path(f"s3://AKIAIOSF:{SECRET}@bucket/a/b?endpoint_override=hidden:1") / "c"
    assert str(path) == "s3://bucket/a/b/c"
    for word in ("AKIAIOSF", "wJalr", "hidden"):
        assert word not in str(path) + repr(path) + f"{path!r:.500}"
    assert path.location.secret == SECRET.replace("%2F", "/")


def test_the_container_of_an_account_is_not_a_secret():
    assert str(as_path("abfs://box@account.dfs.net/a")) == "abfs://box@account.dfs.net/a"


@pytest.mark.parametrize("scheme", ["s3", "gs", "sftp"])
def test_a_secret_with_a_slash_is_refused_and_not_repeated(scheme):
    with pytest.raises(InvalidOption, match="%2F") as caught:
        as_path(f"{scheme}://AKIAIOSF:wJalr/XUtn@bucket/a")
    assert "wJalr" not in str(caught.value) and "XUtn" not in str(caught.value)


@pytest.mark.parametrize("root", ["host:22", "[::1]:22", "[::1]"])
def test_a_host_may_have_a_port(root):
    assert str(as_path(f"sftp://user:word@{root}/a")) == f"sftp://{root}/a"


@pytest.mark.parametrize("named", [Path("s3://AKIAIOSF:wJalr@bucket/a"), "file://me:wJalr@host/a"])
def test_a_uri_that_is_refused_is_shown_without_its_keys(named):
    with pytest.raises(InvalidOption) as caught:
        as_path(named)
    assert "wJalr" not in str(caught.value) and "AKIAIOSF" not in str(caught.value)


@pytest.mark.parametrize("uri", ["s3://", "s3:///a", "gs://"])
def test_a_uri_without_a_bucket_is_refused(uri):
    with pytest.raises(InvalidOption, match="names no bucket"):
        as_path(uri)


def test_a_path_object_that_was_a_uri_is_refused():
    with pytest.raises(InvalidOption, match="give URIs as strings"):
        as_path(Path("s3://bucket/a"))


def test_written_bytes_are_read_back(folder):
    put(folder / "a.txt", b"abc\ndef\n")
    path = folder / "a.txt"
    assert path.read_bytes() == b"abc\ndef\n"
    assert path.read_text() == "abc\ndef\n"
    assert (path.name, path.suffix, path.parent) == ("a.txt", ".txt", folder)
    assert path.stat().st_size == 8
    with path.open("rb") as stream:
        stream.seek(4)
        assert stream.readline() == b"def\n"
    with local_copy(path) as copy:
        assert copy.read_bytes() == b"abc\ndef\n"
    assert not copy.exists()


def test_files_and_folders_are_distinguished(folder):
    assert not folder.exists()
    put(folder / "in" / "a", b"1")
    assert folder.is_dir() and not folder.is_file()
    assert (folder / "in" / "a").is_file() and not (folder / "in" / "a").is_dir()
    assert not (folder / "b").exists()
    with pytest.raises(FileNotFoundError):
        (folder / "b").stat()
    with pytest.raises(FileNotFoundError):
        (folder / "b").read_bytes()


def test_a_listing_has_one_level_or_all_of_them(folder):
    for name in ("b.json", "a.json", "c.txt", "deep/er/d.json"):
        put(folder / name, b"1")
    assert [p.name for p in folder.iterdir()] == ["a.json", "b.json", "c.txt", "deep"]
    assert [p.name for p in folder.glob("*.json")] == ["a.json", "b.json"]
    found = [str(p.relative_to(folder)) for p in folder.rglob("*.json")]
    assert found == ["a.json", "b.json", "deep/er/d.json"]
    assert folder.sizes() == {"a.json": 1, "b.json": 1, "c.txt": 1}
    assert list((folder / "none").iterdir()) == []


def test_files_and_folders_can_be_removed(folder):
    for name in ("keep", "gone/a", "gone/b"):
        put(folder / name, b"1")
    (folder / "gone" / "a").unlink()
    (folder / "gone" / "a").unlink(missing_ok=True)
    assert [p.name for p in (folder / "gone").iterdir()] == ["b"]
    (folder / "gone").remove_folder()
    (folder / "gone").remove_folder()
    assert [p.name for p in folder.iterdir()] == ["keep"]


def test_a_block_that_fails_uploads_nothing(folder):
    put(folder / "a", b"old")
    with pytest.raises(RuntimeError), whole_file(folder / "a") as local:
        local.write_bytes(b"new")
        raise RuntimeError
    assert (folder / "a").read_bytes() == b"old"
    assert [p.name for p in folder.iterdir()] == ["a"]


def test_a_path_can_be_sent_to_other_processes(bucket):
    path = as_path(f"s3://{bucket}/a")
    assert pickle.loads(pickle.dumps(path)) == path  # noqa: S301 - our own


def test_a_large_object_arrives_whole(bucket, objects):
    data = os.urandom(25 << 20)
    put(as_path(f"s3://{bucket}/large"), data)
    assert objects()["large"] == data


def test_a_small_object_takes_one_request(bucket, store):
    put(as_path(f"s3://{bucket}/small"), b"1")
    assert [request.method for request in store.requests] == ["PUT"]


def test_threads_read_ranges_of_one_file_at_the_same_time(folder):
    """fsspec's memory:// shares one position between all who open a file."""
    numbers = list(range(2000))
    put(folder / "numbers", b"".join(number.to_bytes(4, "little") for number in numbers))

    def read(number):
        return int.from_bytes((folder / "numbers").read_range(4 * number, 4), "little")

    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(read, numbers)) == numbers
    assert len((folder / "numbers").read_range(7990, 100)) == 10


def test_scratch_folders_of_dead_processes_are_removed_and_of_live_ones_are_not(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "quire-transfer-dead").mkdir()
    (tmp_path / "quire-transfer-dead" / "shard").write_bytes(b"1")
    path = RemotePath.of("memory://alive/a")
    with path.written_whole() as local:
        local.write_bytes(b"2")
        sweep_scratch()
        assert local.exists()
        assert not (tmp_path / "quire-transfer-dead").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_folder_made_during_a_sweep_is_kept(tmp_path):
    def make(_):
        with scratch_folder(tmp_path) as folder:
            (folder / "file").write_bytes(b"1")
            time.sleep(0.001)
            return (folder / "file").read_bytes()

    with ThreadPoolExecutor(4) as makers, ThreadPoolExecutor(2) as sweepers:
        sweeps = [sweepers.submit(sweep_scratch, tmp_path) for _ in range(2000)]
        assert set(makers.map(make, range(600))) == {b"1"}
        assert all(sweep.result() is None for sweep in sweeps)
    assert list(tmp_path.iterdir()) == []


def test_a_scratch_folder_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    real, swept = fcntl.flock, []

    def sweep_first(descriptor, kind):
        if not swept:
            swept.append(next(tmp_path.iterdir()))
            swept[0].rmdir()
        real(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    with scratch_folder(tmp_path) as folder:
        assert folder.is_dir() and folder != swept[0]


def test_an_unknown_scheme_is_an_error_of_two_lines():
    with pytest.raises(InvalidOption) as caught:
        as_path("s4://user:password@bucket/a").exists()
    first, second = str(caught.value).split("\n")
    assert first == "s4://bucket: s4:// is not a scheme that pyarrow or fsspec knows"
    assert "s3://" in second


def test_a_missing_package_is_named():
    with pytest.raises(MissingDependency) as caught:
        as_path("abfs://box@account/a").exists()
    assert "adlfs" in str(caught.value)


def test_missing_fsspec_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(MissingDependency, match="pip install fsspec"):
        as_path("sftp://nowhere/a").exists()


def test_an_unknown_option_is_an_error_that_suggests_the_nearest():
    with pytest.raises(InvalidOption, match="did you mean 'region'"):
        as_path("s3://bucket/a?regin=eu").exists()


def test_options_that_a_scheme_does_not_take_are_an_error():
    with pytest.raises(InvalidOption, match="'token', but memory:// URIs take no opt") as caught:
        as_path("memory://bucket/a?token=wJalr").exists()
    assert "wJalr" not in two_lines(caught)


def two_lines(caught):
    first, second = str(caught.value).split("\n")
    assert first and second
    return str(caught.value)


def test_a_missing_bucket_is_named(store):
    with pytest.raises(StorageError) as caught:
        put(as_path("s3://no-such-bucket/a"), b"1")
    assert "there is no bucket 'no-such-bucket'" in two_lines(caught)


def test_denied_access_says_which_credentials_to_check(bucket, store):
    store.failing = lambda request: 403
    with pytest.raises(StorageError) as caught:
        as_path(f"s3://AKIAIOSF:{SECRET}@{bucket}/a").read_bytes()
    message = two_lines(caught)
    assert "denies access" in message and "AWS_ACCESS_KEY_ID" in message
    assert "wJalr" not in message and "AKIAIOSF" not in message
    assert caught.value.__cause__ is None


def test_a_store_that_cannot_be_reached_is_an_error_within_seconds(store, monkeypatch):
    monkeypatch.setattr("quire.storage.stores._ATTEMPTS", ATTEMPTS)
    path = as_path("s3://bucket/a?endpoint_override=127.0.0.1:9&scheme=http")
    started = time.monotonic()
    with pytest.raises(StorageError) as caught:
        path.exists()
    assert "cannot be reached" in two_lines(caught)
    assert time.monotonic() - started < 30


def test_requests_are_retried_if_a_store_fails_now_and_then(bucket, store):
    put(as_path(f"s3://{bucket}/a"), b"abc")
    seen = []

    def fail_first(request):
        seen.append(request)
        return 500 if len(seen) % 2 else None

    store.failing = fail_first
    assert as_path(f"s3://{bucket}/a").read_bytes() == b"abc"
    put(as_path(f"s3://{bucket}/b"), b"def")
    store.failing = lambda request: None
    assert as_path(f"s3://{bucket}/b").read_bytes() == b"def"


@pytest.mark.parametrize("size", [100, 300_000])
def test_fault_48_a_truncated_response_is_requested_again(bucket, store, size):
    data = os.urandom(size)
    path = as_path(f"s3://{bucket}/a")
    put(path, data)
    seen = []

    def cut_first(request):
        seen.append(request)
        return CUT if request.range and len(seen) < 3 else None

    store.failing = cut_first
    assert path.read_bytes() == data
    store.failing = lambda request: CUT if request.range else None
    with pytest.raises(StorageError):
        path.read_bytes()


def test_errors_of_any_kind_pass_through_arrow_with_their_message(monkeypatch, tmp_path):
    import fsspec
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = as_path("memory://broken/a.parquet")
    with whole_file(path) as local:
        pq.write_table(pa.table({"a": range(1000)}), local)

    def broken(*arguments, **named):
        raise LookupError("no line to the store")

    file = path.arrow_file()
    assert pq.ParquetFile(file).metadata.num_rows == 1000
    opened = fsspec.filesystem("memory").open("/broken/a.parquet")
    monkeypatch.setattr(type(opened), "read", broken, raising=False)
    with pytest.raises(StorageError, match="no line to the store"):
        pq.ParquetFile(path.arrow_file())


@pytest.mark.parametrize("failing_part", ["1", "2", "uploadId"])
@pytest.mark.parametrize("status", [403, 500])
def test_an_upload_that_fails_in_the_middle_is_an_error_and_leaves_no_object(
    bucket, store, objects, tmp_path, failing_part, status, monkeypatch
):
    monkeypatch.setattr("quire.storage.transfers._WRITE", 6 << 20)

    def fail(request):
        is_end = failing_part == "uploadId" and request.query.startswith("uploadId")
        return status if is_end or f"partNumber={failing_part}&" in request.query else None

    store.failing = fail
    with pytest.raises(StorageError):
        put(as_path(f"s3://{bucket}/large"), bytes(20 << 20))
    store.failing = lambda request: None
    assert objects() == {}


@pytest.mark.parametrize("size", [3, 12 << 20])
@pytest.mark.parametrize("status", [403, 500])
def test_a_refused_upload_is_an_error(bucket, store, size, status):
    store.failing = lambda request: status if request.method in ("PUT", "POST") else None
    with pytest.raises(StorageError) as caught:
        put(as_path(f"s3://{bucket}/a"), bytes(size))
    two_lines(caught)
