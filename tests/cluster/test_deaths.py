"""Fault 47: deaths in a Ray cluster do not change the bytes of the output."""

from __future__ import annotations

import pytest

from quire.corpus.engines.ray import RayEngine, scheduler
from quire.errors import WorkerError
from quire.verify.output import verify_output
from tests.cluster.driver import kill_a_driver
from tests.cluster.jobs import DiesAfterItsCommit, DiesAlways, FaultyEngine, TellsItsProcess
from tests.cluster.killer import is_busy, killing_workers
from tests.cluster.nodes import NODE, kill_node
from tests.corpus.corpora import hashes


def test_fault_47_a_worker_dies_between_rename_and_return_on_each_of_two_nodes(
    cluster, corpus, undisturbed, tmp_path
):
    engine = FaultyEngine(fault=DiesAfterItsCommit, marks=tmp_path / "marks", engine=RayEngine())
    corpus.pack(tmp_path / "out", engine=engine)
    assert len(list((tmp_path / "marks").iterdir())) == 2, "one death on each of two nodes"
    assert hashes(tmp_path / "out") == undisturbed
    assert verify_output(tmp_path / "out").ok


def test_fault_47_workers_killed_at_random_moments(cluster, corpus, undisturbed, tmp_path):
    marks, seen = tmp_path / "marks", []
    engine = FaultyEngine(fault=TellsItsProcess, marks=marks, engine=RayEngine())
    with killing_workers(marks, every=0.5, most=5) as killed:
        result = corpus.pack(tmp_path / "out", engine=engine, on_progress=seen.append)
    assert len(killed) >= 3
    assert hashes(tmp_path / "out") == undisturbed
    counted = sum(progress.documents for progress in seen)
    assert counted == result.ledger.documents.input, "what was done again is counted once"


def test_fault_47_a_node_dies_in_the_middle(cluster, corpus, undisturbed, tmp_path):
    lost = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    marks, commits, killed = tmp_path / "marks", [], []

    def hear(progress) -> None:
        commits.extend([progress.commit] * (progress.commit is not None))
        if len(commits) >= 3 and not killed and is_busy(marks, lost):
            kill_node(cluster, lost)
            killed.append(lost)

    engine = FaultyEngine(fault=TellsItsProcess, marks=marks, engine=RayEngine())
    corpus.pack(tmp_path / "out", engine=engine, on_progress=hear)
    assert killed, "in the middle of a partition"
    assert hashes(tmp_path / "out") == undisturbed


def test_a_run_whose_driver_is_killed_twice_can_be_resumed(cluster, corpus, undisturbed, tmp_path):
    out = tmp_path / "out"
    for _ in range(2):
        assert kill_a_driver(cluster.address, corpus.folder, out, tmp_path / "marks", 2)
    assert not (out / "manifest.json").exists()
    starts = []
    corpus.pack(out, engine=RayEngine(), resume=True, on_start=starts.append)
    assert starts[0].resumed >= 4, "nothing is done again that was committed"
    assert hashes(out) == undisturbed


def test_a_partition_that_kills_every_worker_is_an_error_not_a_hang(
    cluster, corpus, undisturbed, tmp_path, monkeypatch
):
    monkeypatch.setattr(scheduler, "_DEATHS", 3)
    out = tmp_path / "out"
    engine = FaultyEngine(fault=DiesAlways, marks=tmp_path / "marks", engine=RayEngine())
    with pytest.raises(
        WorkerError, match=r"3 workers died on partition 1, .*give tasks more memory"
    ):
        corpus.pack(out, engine=engine)
    assert len(list(out.glob("data/*.parquet"))) == len(undisturbed) - 2, "all but one"
    corpus.pack(out, resume=True)  # by the local engine, which knows of no Ray
    assert hashes(out) == undisturbed
