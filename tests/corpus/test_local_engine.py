"""Processes of this machine: started together, watched, each partition done once."""

from __future__ import annotations

from collections import Counter

from quire.dataset.corpus import local_engine
from tests.corpus.corpora import hashes, jsonl, pack, texts
from tests.corpus.pickled_tokenizer import PickledTokenizer


def test_all_workers_are_started_before_one_of_them_is_told_its_job(tmp_path, monkeypatch):
    """The job is larger than a pipe: told one by one, they would import one after the other."""
    happened = []
    start, give = local_engine._Worker.__init__, local_engine._Worker.give

    def started(worker, *arguments):
        start(worker, *arguments)
        happened.append("start")

    def told(worker, partition):
        happened.append("job" if worker._untold is not None else "partition")
        give(worker, partition)

    monkeypatch.setattr(local_engine._Worker, "__init__", started)
    monkeypatch.setattr(local_engine._Worker, "give", told)
    tokenizer = PickledTokenizer(b" " * 10**6)
    pack(jsonl(tmp_path / "a.jsonl", texts(60)), tmp_path / "out", tokenizer, **_MANY, workers=3)
    assert happened[:6] == ["start"] * 3 + ["job"] * 3
    assert set(happened[6:]) == {"partition"}


def test_the_job_is_pickled_once_for_all_workers(tmp_path):
    tokenizer = PickledTokenizer()
    pack(jsonl(tmp_path / "a.jsonl", texts(60)), tmp_path / "out", tokenizer, **_MANY, workers=3)
    assert tokenizer.times_pickled == 1


def test_a_partition_whose_worker_died_while_idle_is_done_once(tmp_path, monkeypatch):
    give, killed = local_engine._Worker.give, []

    def kill_before_it_is_told(worker, partition):
        if len(killed) < 2:
            killed.append(partition.number)
            worker.process.kill()
            worker.process.join()
        give(worker, partition)

    path = jsonl(tmp_path / "a.jsonl", texts(60))
    pack(path, tmp_path / "undisturbed", **_MANY)
    monkeypatch.setattr(local_engine._Worker, "give", kill_before_it_is_told)
    commits: Counter[int] = Counter()

    def count(progress):
        if progress.commit is not None:
            commits[progress.commit.partition] += 1

    pack(path, tmp_path / "out", **_MANY, workers=2, on_progress=count)
    assert killed == [0, 0]
    assert set(commits.values()) == {1}
    assert hashes(tmp_path / "out") == hashes(tmp_path / "undisturbed")


_MANY = {"partition_size": 200}
