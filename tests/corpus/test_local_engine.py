"""Processes of this machine: started together, watched, each partition done once."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest

from quire.corpus.engines import local
from quire.corpus.job import PartitionJob
from quire.errors import InvalidOption
from tests.corpus.corpora import hashes, jsonl, pack, texts
from tests.corpus.pickled_tokenizer import PickledTokenizer


def test_all_workers_are_started_before_any_receives_its_job(tmp_path, monkeypatch):
    """The job is larger than a pipe: told one by one, they would import one after the other."""
    happened = []
    start, give = local._Worker.__init__, local._Worker.give

    def started(worker, *arguments):
        start(worker, *arguments)
        happened.append("start")

    def told(worker, partition):
        happened.append("job" if worker._unsent_job is not None else "partition")
        give(worker, partition)

    monkeypatch.setattr(local._Worker, "__init__", started)
    monkeypatch.setattr(local._Worker, "give", told)
    tokenizer = PickledTokenizer(b" " * 10**6)
    pack(jsonl(tmp_path / "a.jsonl", texts(60)), tmp_path / "out", tokenizer, **_MANY, workers=3)
    assert happened[:6] == ["start"] * 3 + ["job"] * 3
    assert set(happened[6:]) == {"partition"}


def test_the_job_is_pickled_once_for_all_workers(tmp_path):
    tokenizer = PickledTokenizer()
    pack(jsonl(tmp_path / "a.jsonl", texts(60)), tmp_path / "out", tokenizer, **_MANY, workers=3)
    assert tokenizer.times_pickled == 1


def test_a_partition_whose_worker_died_while_idle_is_packed_once(tmp_path, monkeypatch):
    give, killed = local._Worker.give, []

    def kill_before_it_is_told(worker, partition):
        if len(killed) < 2:
            killed.append(partition.number)
            worker.process.kill()
            worker.process.join()
        give(worker, partition)

    path = jsonl(tmp_path / "a.jsonl", texts(60))
    pack(path, tmp_path / "undisturbed", **_MANY)
    monkeypatch.setattr(local._Worker, "give", kill_before_it_is_told)
    commits: Counter[int] = Counter()

    def count(progress):
        if progress.commit is not None:
            commits[progress.commit.partition] += 1

    pack(path, tmp_path / "out", **_MANY, workers=2, on_progress=count)
    assert killed == [0, 0]
    assert set(commits.values()) == {1}
    assert hashes(tmp_path / "out") == hashes(tmp_path / "undisturbed")


_MANY = {"partition_size": 200}


def backwards(sizes, max_length, options):
    """A row for each fragment, the last one first."""
    return list(range(len(sizes)))[::-1]


@pytest.mark.slow
def test_workers_know_a_strategy_that_their_script_registered(tmp_path, registered):
    registered("backwards", backwards)
    path = jsonl(tmp_path / "a.jsonl", texts(60))
    for workers in (1, 2):
        pack(path, tmp_path / str(workers), **_MANY, strategy="backwards", workers=workers)
    assert hashes(tmp_path / "1") == hashes(tmp_path / "2")


def test_a_strategy_that_cannot_be_pickled_is_refused_before_work(tmp_path, registered):
    registered("local", lambda sizes, max_length, options: list(range(len(sizes))))
    path = jsonl(tmp_path / "a.jsonl", texts(60))
    with pytest.raises(InvalidOption, match=r"strategy 'local' cannot be sent to .*, or use w"):
        pack(path, tmp_path / "out", **_MANY, strategy="local", workers=2)
    assert not (tmp_path / "out").exists()
    pack(path, tmp_path / "out", **_MANY, strategy="local", workers=1)


def test_a_job_brings_its_strategy_to_a_process_that_does_not_know_it(tmp_path, registered):
    """As a task of Ray does, which runs the same job."""
    from quire.plan.strategies import _REGISTERED

    registered("backwards", backwards)
    seen = []
    path = jsonl(tmp_path / "a.jsonl", texts(5))
    with pytest.MonkeyPatch.context() as patch:
        run = PartitionJob.__call__

        def forgetful(job, partition, report):
            _REGISTERED.pop("backwards")
            seen.append(partition.number)
            run(pickle.loads(pickle.dumps(job)), partition, report)  # noqa: S301 - our own

        patch.setattr(PartitionJob, "__call__", forgetful)
        assert pack(path, tmp_path / "out", strategy="backwards").num_rows >= 5
    assert seen == [0]
