"""Worker processes on this machine: started together, supervised, each partition packed once."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter

import pytest

from quire.corpus.engines import choose_engine, local
from quire.corpus.job import PartitionJob
from quire.errors import InvalidOption
from tests.corpus.corpora import hashes, jsonl, pack, texts
from tests.corpus.pickled_tokenizer import PickledTokenizer, WarningTokenizer

_ALLOCATOR = """
import pyarrow as pa
from quire.corpus.engines.local import keep_memory
keep_memory(is_threaded=False)
print(pa.default_memory_pool().backend_name)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("named", "used"), [(None, "system"), ("mimalloc", "mimalloc")])
def test_a_process_of_ours_uses_malloc_unless_another_allocator_is_named(named, used):
    others = {k: v for k, v in os.environ.items() if k != "ARROW_DEFAULT_MEMORY_POOL"}
    env = others if named is None else {**others, "ARROW_DEFAULT_MEMORY_POOL": named}
    words = [sys.executable, "-c", _ALLOCATOR]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [used]


def test_all_workers_are_started_before_any_receives_its_job(tmp_path, monkeypatch):
    """The job is larger than a pipe's buffer: sent one by one, workers would import one by one."""
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
    """As in a Ray task, which runs the same job."""
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


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(local.os, "cpu_count", lambda: 2)


def forked(monkeypatch):
    """The start methods of the workers that are started from now on."""
    methods, start = [], local._Worker.__init__

    def noted(worker, job, threads):
        start(worker, job, threads)
        methods.append(worker.process._start_method)

    monkeypatch.setattr(local._Worker, "__init__", noted)
    return methods


@pytest.mark.usefixtures("two_cores")
def test_forks_give_the_same_bytes_and_pickle_no_tokenizer(tmp_path, monkeypatch):
    path, tokenizer = jsonl(tmp_path / "a.jsonl", texts(60)), PickledTokenizer()
    pack(path, tmp_path / "alone", tokenizer, **_MANY)
    methods = forked(monkeypatch)
    pack(path, tmp_path / "out", tokenizer, **_MANY, engine=local.LocalEngine(workers=2, fork=True))
    assert methods == ["fork", "fork"]
    assert tokenizer.times_pickled == 0
    assert hashes(tmp_path / "out") == hashes(tmp_path / "alone")


@pytest.mark.usefixtures("two_cores")
def test_a_fork_that_died_is_replaced_by_a_new_process(tmp_path, monkeypatch):
    path = jsonl(tmp_path / "a.jsonl", texts(60))
    pack(path, tmp_path / "alone", **_MANY)
    methods, give = forked(monkeypatch), local._Worker.give

    def kill_the_first(worker, partition):
        if len(methods) == 2:
            worker.process.kill()
            worker.process.join()
        give(worker, partition)

    monkeypatch.setattr(local._Worker, "give", kill_the_first)
    pack(path, tmp_path / "out", **_MANY, engine=local.LocalEngine(workers=2, fork=True))
    assert methods == ["fork", "fork", "spawn"]
    assert hashes(tmp_path / "out") == hashes(tmp_path / "alone")


def test_workers_that_have_several_cores_each_are_new_processes(tmp_path, monkeypatch):
    """A library may need its threads there, and a fork does not have those of its parent."""
    monkeypatch.setattr(local.os, "cpu_count", lambda: 4)
    methods, path = forked(monkeypatch), jsonl(tmp_path / "a.jsonl", texts(60))
    pack(path, tmp_path / "out", **_MANY, engine=local.LocalEngine(workers=2, fork=True))
    assert methods == ["spawn", "spawn"]


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("fork", [False, True])
def test_a_warning_of_workers_is_given_once_by_the_caller(tmp_path, fork):
    path = jsonl(tmp_path / "a.jsonl", texts(60))
    with pytest.warns(UserWarning) as seen:
        engine = local.LocalEngine(workers=2, fork=fork)
        pack(path, tmp_path / "out", WarningTokenizer(), **_MANY, engine=engine)
    assert [str(warning.message) for warning in seen] == ["a text was encoded"]


def test_only_the_command_line_forks_its_workers():
    from quire.cli.pack import engine_of

    assert engine_of("local", 2, None, None, None) == local.LocalEngine(workers=2, fork=True)
    assert not choose_engine("local", 2).fork  # the threads of a caller's process are not known
