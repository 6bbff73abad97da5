"""What a user can cause on a cluster: an error that says what to do, and nothing is lost."""

from __future__ import annotations

from collections import Counter

import pytest

from quire.corpus.engines.ray import RayEngine, scheduler
from quire.errors import InvalidDocument, InvalidOption, WorkerError
from tests.cluster.jobs import FailsAlways, FailsOnSome, FaultyEngine
from tests.corpus.corpora import hashes, jsonl, pack


def test_partitions_that_fail_every_time_are_named_and_the_rest_is_committed(
    cluster, corpus, undisturbed, tmp_path
):
    out, marks = tmp_path / "out", tmp_path / "marks"
    engine = FaultyEngine(fault=FailsOnSome, marks=marks, engine=RayEngine())
    with pytest.raises(WorkerError) as caught:
        corpus.pack(out, engine=engine)
    first, second = str(caught.value).splitlines()
    assert first == "partition 2 failed with ValueError: this partition is cursed"
    assert f"partition 2 ({corpus.folder / '0.jsonl'} from record " in second
    assert "failed; so did 1 more (5). Committed shards are kept" in second
    assert "in __call__" in "\n".join(caught.value.__notes__), "the traceback of the task"
    tries = Counter(mark.name.split("-")[0] for mark in marks.iterdir())
    assert tries["2"] == tries["5"] == 3
    assert set((tries - Counter({"2": 3, "5": 3})).values()) == {1}
    assert len(list(out.glob("data/*.parquet"))) == len(undisturbed) - 3, "all but two"
    (marks / "mended").touch()
    corpus.pack(out, engine=engine, resume=True)
    assert hashes(out) == undisturbed


def test_no_more_partitions_start_after_many_failures(cluster, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "_MOST_FAILURES", 2)
    monkeypatch.setattr(scheduler, "_ERRORS", 1)
    engine = FaultyEngine(fault=FailsAlways, marks=tmp_path / "marks", engine=RayEngine(workers=1))
    with pytest.raises(WorkerError, match="all is cursed"):
        corpus.pack(tmp_path / "out", engine=engine)
    assert len(list((tmp_path / "marks").iterdir())) == 2


def test_a_bad_record_is_the_error_that_the_local_engine_raises(cluster, tmp_path):
    path = jsonl(tmp_path / "a.jsonl", ["good", {"text": 5}, *["more"] * 50])
    said = {}
    for engine in ("local", "ray"):
        with pytest.raises(InvalidDocument) as caught:
            pack(path, tmp_path / engine, engine=engine, partition_size=100)
        said[engine] = str(caught.value).splitlines()
    assert said["ray"][0] == said["local"][0]
    assert "record 1" in said["ray"][0]
    assert "partition 0" in said["ray"][1]
    assert not list((tmp_path / "local").glob("data/*")), "the local engine stops at once"
    assert len(list((tmp_path / "ray").glob("data/*"))) > 5, "the others are committed"


def test_a_task_that_no_node_has_room_for_is_an_error_not_a_hang(cluster, corpus, tmp_path):
    engine = RayEngine(cpus=64, patience=2)
    with pytest.raises(InvalidOption, match=r"for 2 s no node .* 64 CPUs\nlower") as caught:
        corpus.pack(tmp_path / "out", engine=engine)
    assert "then resume" in str(caught.value)


def test_a_node_with_another_pyarrow_is_an_error(cluster, corpus, tmp_path, monkeypatch):
    other = {**scheduler.versions(), "pyarrow": "1.0"}
    monkeypatch.setattr(scheduler, "versions", lambda: other)
    with pytest.raises(WorkerError, match=r"has pyarrow .* but the driver has 1\.0.*\ninstall"):
        corpus.pack(tmp_path / "out", engine="ray")
    assert not list((tmp_path / "out").glob("data/*")), "no bytes of another version"


def test_a_node_that_does_not_see_the_output_is_an_error(cluster, corpus, tmp_path, monkeypatch):
    def elsewhere(job):
        from dataclasses import replace

        return replace(job, work=tmp_path / "not there")

    monkeypatch.setattr("quire.corpus.engines.ray._with_absolute_paths", elsewhere)
    with pytest.raises(WorkerError, match="does not see the output"):
        corpus.pack(tmp_path / "out", engine="ray")


def test_a_node_without_the_package_is_an_error(cluster, corpus, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)  # of this process alone
    (tmp_path / "only_here.py").write_text(ONLY_HERE)
    from only_here import Job

    engine = FaultyEngine(fault=Job, marks=tmp_path / "marks", engine=RayEngine())
    with pytest.raises(WorkerError, match=r"cannot run quire: .*'only_here'\ninstall the same"):
        corpus.pack(tmp_path / "out", engine=engine)


ONLY_HERE = """
from tests.cluster.jobs import FaultyJob
class Job(FaultyJob): pass
"""


def test_an_address_of_another_cluster_than_the_connected_one_is_an_error(
    cluster, corpus, tmp_path
):
    with pytest.raises(InvalidOption, match=r"is connected to .*\ncall ray.shutdown"):
        corpus.pack(tmp_path / "out", engine=RayEngine(address="127.0.0.1:1"))
    assert not (tmp_path / "out").exists()
