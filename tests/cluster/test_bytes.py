"""The bytes are the local engine's, and the driver receives progress while the work is done."""

from __future__ import annotations

import os

import pytest

import quire
from quire.corpus.engines.ray import RayEngine, scheduler
from tests.cluster.jobs import FaultyEngine, WaitsToBeHeard
from tests.corpus.corpora import hashes


@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        ("lines", 1),
        ("lines", 5),
        ("lines", None),
        ("compressed", None),
        ("tokens", 2),
        ("tokens", None),
        ("indexed", 3),
        ("qwen3", None),
    ],
)
def test_bytes_are_those_of_the_local_engine(cluster, corpora, kind, workers, tmp_path):
    corpus, undisturbed = corpora(kind)
    seen = []
    result = corpus.pack(tmp_path / "out", engine="ray", workers=workers, on_progress=seen.append)
    assert hashes(tmp_path / "out") == undisturbed
    documents = result.ledger.documents
    bad = documents.dropped.get("bad_record", 0)
    assert sum(progress.documents for progress in seen) == documents.input - bad
    assert sum(progress.bad for progress in seen) == bad
    commits = [progress.commit.name for progress in seen if progress.commit is not None]
    assert len(commits) == len(set(commits)) == len(result.manifest["shards"])


def test_a_run_begun_by_one_engine_is_completed_by_the_other(
    cluster, corpus, undisturbed, tmp_path
):
    out = tmp_path / "out"
    for engine in ("local", "ray", "local"):
        with pytest.raises(_Enough):
            corpus.pack(out, engine=engine, resume=True, on_progress=_interrupt_at_commit(4))
    corpus.pack(out, engine="ray", resume=True)
    assert hashes(out) == undisturbed


def test_tasks_find_relative_paths(cluster, corpus, undisturbed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    relative = os.path.relpath(corpus.folder, tmp_path)
    options = {"max_length": 128, "partition_size": 4000}
    quire.pack_corpus([relative], "out", "byte", engine="ray", **options)
    assert hashes(tmp_path / "out") == undisturbed


def test_progress_reaches_the_driver_before_a_partition_is_done(
    cluster, corpus, undisturbed, tmp_path, monkeypatch
):
    monkeypatch.setattr(scheduler, "_ERRORS", 1)
    marks = tmp_path / "marks"
    engine = FaultyEngine(fault=WaitsToBeHeard, marks=marks, engine=RayEngine())
    corpus.pack(tmp_path / "out", engine=engine, on_progress=lambda _: (marks / "heard").touch())
    assert hashes(tmp_path / "out") == undisturbed


class _Enough(Exception):
    pass


def _interrupt_at_commit(count: int):
    left = [count]

    def hear(progress) -> None:
        left[0] -= progress.commit is not None
        if left[0] == 0:
            raise _Enough

    return hear
