"""How tasks are assigned and monitored, with a scripted stand-in for Ray."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from quire.corpus.engines.ray import scheduler
from quire.corpus.engines.ray.cluster import TaskResources
from quire.corpus.engines.ray.scheduler import TaskScheduler
from quire.corpus.job import Progress
from quire.corpus.partitions import Partition
from quire.errors import InvalidOption, WorkerError

PARTITIONS = [Partition(number=number, spans=()) for number in range(8)]
NODE = {"Alive": True, "Resources": {"CPU": 2.0}}
JOB = SimpleNamespace(corpus=SimpleNamespace(files=()))


class RayError(Exception):
    pass


class RayTaskError(RayError):
    pass


class RaySystemError(RayError):
    pass


class FakeRay:
    """A cluster simulated in one process: a task sends the messages of its script."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayTaskError, RaySystemError=RaySystemError
    )

    def __init__(self, script, nodes=(NODE,)) -> None:
        self.script, self._nodes = script, list(nodes)
        self.begun: list[int] = []
        self.most = 0
        self._deadline = time.monotonic() + 10

    def put(self, job):
        return job

    def nodes(self):
        return self._nodes

    def remote(self, **options):
        assert options["max_retries"] == 0
        return lambda function: SimpleNamespace(remote=self._begin)

    def _begin(self, held, partition, threads, versions):
        self.begun.append(partition.number)
        return iter(self.script(partition.number, self.begun.count(partition.number)))

    def wait(self, streams, timeout):
        assert time.monotonic() < self._deadline, "a wait without end"
        self.most = max(self.most, len(streams))
        if self.script is nothing:
            time.sleep(0.01)
            return [], streams
        return streams[:1], streams[1:]

    def get(self, said, timeout):
        if isinstance(said, Exception):
            raise said
        return said


def nothing(number, attempt):
    return []


def run(ray, most=None, patience=60.0):
    heard = []
    TaskScheduler(ray, JOB, TaskResources(cpus=1), most, patience).run(PARTITIONS, heard.append)
    return heard


def done(number, attempt):
    return [Progress(documents=number), None]


@pytest.mark.parametrize(("most", "in_flight"), [(None, 4), (3, 3), (100, 8)])
def test_tasks_in_flight_are_limited_to_twice_the_slots_or_the_given_number(most, in_flight):
    ray = FakeRay(done)
    heard = run(ray, most)
    assert ray.most == in_flight
    assert ray.begun == list(range(8))
    assert sum(progress.documents for progress in heard) == sum(range(8))


def test_a_stream_without_its_last_message_is_a_death_and_its_progress_is_subtracted():
    def script(number, attempt):
        return [Progress(documents=5)] + [None] * (number != 3 or attempt == 3)

    ray = FakeRay(script)
    heard = run(ray)
    assert ray.begun.count(3) == 3
    assert sum(progress.documents for progress in heard) == 5 * 8


def test_a_partition_whose_worker_died_is_retried_after_all_others():
    ray = FakeRay(lambda number, attempt: [None] if number or attempt > 1 else [RayError("died")])
    run(ray)
    assert ray.begun == [*range(8), 0]


def test_a_partition_fails_after_ten_deaths_or_three_unknown_errors():
    for error, times, words in (
        (RayError("no memory"), 10, "10 workers died on partition 2, the last with RayError"),
        (RayTaskError("strange"), 3, "partition 2 failed with RayTaskError: strange"),
    ):
        ray = FakeRay(lambda number, attempt, e=error: [e] if number == 2 else [None])
        with pytest.raises(WorkerError, match=words):
            run(ray)
        assert ray.begun.count(2) == times
        assert set(ray.begun) == set(range(8)), "all others are done"


def test_losing_all_nodes_is_an_error_not_an_endless_wait(monkeypatch):
    monkeypatch.setattr(scheduler, "_SECONDS_BETWEEN_COUNTS", 0.0)
    ray = FakeRay(nothing)
    ray.nodes = lambda: [NODE] if not ray.most else [{**NODE, "Alive": False}]
    with pytest.raises(InvalidOption, match=r"for 0\.1 s no node .* a task of 1 CPU\nlower"):
        run(ray, patience=0.1)


def test_a_cluster_that_grows_is_used(monkeypatch):
    monkeypatch.setattr(scheduler, "_SECONDS_BETWEEN_COUNTS", 0.0)
    ray = FakeRay(done)
    ray.nodes = lambda: [NODE] if len(ray.begun) < 5 else [NODE, NODE]
    run(ray)
    assert ray.most > 4
