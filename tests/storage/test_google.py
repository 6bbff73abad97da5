"""Packing into Google's store, as far as a server that we wrote ourselves behaves as it does."""

from __future__ import annotations

import subprocess
import sys

import pytest

from quire.errors import OutputError, StorageError
from quire.files import whole_file
from quire.packed import PackedDataset
from quire.storage import as_path
from quire.verify.output import verify_output
from tests.corpus.corpora import jsonl, pack, texts
from tests.storage.test_output_in_stores import files


@pytest.fixture
def port():
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.storage.google", "bucket"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        yield int(server.stdout.readline())
        server.stdin.close()


def uri(port, path, bucket="bucket"):
    options = f"anonymous=true&scheme=http&endpoint_override=127.0.0.1:{port}"
    return f"gs://{bucket}/{path}?{options}"


def objects(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.files_below()}


def test_paths_work_in_google_cloud_storage(port):
    folder = as_path(uri(port, "some/folder"))
    assert not folder.exists()
    for name in ("a.json", "deep/b.json", "deep/er/c.json"):
        with whole_file(folder / name) as local:
            local.write_bytes(name.encode())
    assert [path.name for path in folder.iterdir()] == ["a.json", "deep"]
    assert [path.name for path in folder.listed()[0]] == ["deep"]
    assert folder.sizes() == {"a.json": 6} and folder.is_dir()
    (folder / "deep").remove_folder()
    (folder / "deep").remove_folder()
    assert objects(folder) == {"a.json": b"a.json"}
    with pytest.raises(FileNotFoundError):
        (folder / "none").read_bytes()
    with (
        pytest.raises(StorageError, match="there is no bucket 'none'"),
        whole_file(as_path(uri(port, "a", "none"))) as local,
    ):
        local.write_bytes(b"1")


def test_an_output_in_google_cloud_storage_equals_a_local_one(port, tmp_path):
    corpus = jsonl(tmp_path / "corpus.jsonl", texts(200))
    options = {"partition_size": 1500}
    pack(corpus, tmp_path / "out", **options)
    out, commits = as_path(uri(port, "out")), []

    def stop(progress):
        commits.extend(filter(None, [progress.commit]))
        if len(commits) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(corpus, out, on_progress=stop, **options)
    with pytest.raises(OutputError, match="is not empty"):
        pack(corpus, out, **options)
    pack(corpus, out, resume=True, **options)
    assert objects(out) == files(tmp_path / "out")
    assert pack(corpus, out, resume=True, **options).was_complete
    assert verify_output(out).ok
    rows, local = PackedDataset(out), PackedDataset(tmp_path / "out")
    assert [row["input_ids"].tolist() for row in rows] == [r["input_ids"].tolist() for r in local]
