"""The tasks of one run on a Ray cluster: handed out, listened to, done again, given up."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from quire.corpus.failures import Failure, failure_of
from quire.corpus.partition_job import PartitionJob, Progress, Report
from quire.corpus.partitions import Partition
from quire.corpus.ray_needs import Needs
from quire.corpus.ray_worker import pack_partition, versions
from quire.errors import InvalidOption, OutputError, QuireError, StorageError, WorkerError

_DEATHS = 10
"""How often a partition is begun before deaths under it are taken for its fault: nodes die too."""
_ERRORS = 3
"""How often, where it raises what may pass: an error of the disk, or one that is not ours."""
_MOST_FAILURES = 20
"""Partitions that may fail before nothing new is begun: it is the corpus, or the disk."""
_NO_IMPORT = "The remote function failed to import on the worker"
_SECONDS_TO_WAIT, _SECONDS_BETWEEN_COUNTS = 1.0, 5.0
_SECONDS_TO_FETCH, _SECONDS_TO_STOP = 60.0, 30.0


@dataclass(kw_only=True)
class _Attempt:
    """One task: a partition, and what its worker has told so far."""

    partition: Partition
    told: Progress = field(default_factory=Progress)
    done: bool = False

    def add(self, said: Progress) -> None:
        self.told = _sum(self.told, said, 1)


class Tasks:
    """At most so many tasks in flight; the rest waits here, where it costs nothing."""

    def __init__(
        self,
        ray: Any,  # noqa: ANN401 - a package without types
        job: PartitionJob,
        needs: Needs,
        most: int | None,
        patience: float,
    ) -> None:
        self._ray, self._needs, self._asked, self._patience = ray, needs, most, patience
        # Ray's own retries are off: they would be silent, and endless where memory runs out.
        options = {"num_returns": "streaming", "max_retries": 0, **needs.options()}
        self._task = ray.remote(**options)(pack_partition)
        self._job = ray.put(job)  # the tokenizer travels once to each node
        self._files = job.files
        self._running: dict[Any, _Attempt] = {}
        self._waiting: deque[Partition] = deque()
        self._tries: dict[tuple[int, str], int] = {}
        self._failures: list[Failure] = []
        self._heard = time.monotonic()
        self._counted, self._places = -math.inf, 0

    def run(self, partitions: Sequence[Partition], report: Report) -> None:
        """Return when all are committed; raise when those that can be are."""
        self._waiting.extend(partitions)
        while self._waiting or self._running:
            self._hand_out()
            ready, _ = self._ray.wait(list(self._running), timeout=_SECONDS_TO_WAIT)
            for stream in ready:
                self._heard = time.monotonic()
                self._listen(stream, report)
            self._require_room()
        if self._failures:
            raise failure_of(self._failures, self._files)

    def _hand_out(self) -> None:
        if len(self._failures) >= _MOST_FAILURES:
            self._waiting.clear()
        while self._waiting and len(self._running) < self._most():
            partition = self._waiting.popleft()
            threads = max(1, int(self._needs.cpus))
            stream = self._task.remote([self._job], partition, threads, versions())
            self._running[stream] = _Attempt(partition=partition)

    def _most(self) -> int:
        """Twice the places: workers never wait for the driver, and an autoscaler sees demand."""
        return self._asked or max(1, 2 * self._num_places())

    def _num_places(self) -> int:
        if time.monotonic() - self._counted > _SECONDS_BETWEEN_COUNTS:
            self._places = self._needs.places(self._ray.nodes())
            self._counted = time.monotonic()
        return self._places

    def _require_room(self) -> None:
        """Raise where nothing was heard for long, and no node is there that could say anything."""
        if time.monotonic() - self._heard < self._patience or self._num_places():
            return
        raise InvalidOption(
            f"for {self._patience:g} s no node of the Ray cluster had room for a task of "
            f"{self._needs}\nlower what a task is given, or add nodes, then resume"
        )

    def _listen(self, stream: Any, report: Report) -> None:  # noqa: ANN401
        """Take the next word of a task: progress, None for done, its end, or its error."""
        attempt, errors = self._running[stream], self._ray.exceptions
        try:
            said = self._ray.get(next(stream), timeout=_SECONDS_TO_FETCH)
        except StopIteration:
            del self._running[stream]
            if not attempt.done:
                self._died(attempt, "an end without a word", report)
        except errors.RayTaskError as error:
            del self._running[stream]
            self._raised(attempt, error, report)
        except errors.RayError as error:
            del self._running[stream]
            self._died(attempt, f"{type(error).__name__}: {error}", report)
        else:
            self._take(attempt, said, report)

    def _take(self, attempt: _Attempt, said: Progress | None, report: Report) -> None:
        if said is None:
            attempt.done = True
            return
        attempt.add(said)
        report(said)

    def _raised(self, attempt: _Attempt, error: Any, report: Report) -> None:  # noqa: ANN401
        cause = getattr(error, "cause", error)
        is_of_the_node = isinstance(cause, self._ray.exceptions.RaySystemError)
        if is_of_the_node or str(cause).startswith(_NO_IMPORT):
            cause = _cannot_import(cause)
        known = _known(cause, attempt.partition)
        known.add_note(f"In a task of Ray:\n{error}")
        if type(cause) is WorkerError:  # the node cannot do any partition, and would spoil all
            raise known
        passing = isinstance(cause, OutputError | StorageError) or not isinstance(cause, QuireError)
        self._again_or_never(attempt, known, "error", _ERRORS if passing else 1, report)

    def _died(self, attempt: _Attempt, cause: str, report: Report) -> None:
        died = WorkerError(
            f"{_DEATHS} workers died on partition {attempt.partition.number}, the last with "
            f"{_first_line(cause)}; if it was out of memory, give tasks more memory, or "
            "lower partition_size (in a new output)"
        )
        self._again_or_never(attempt, died, "death", _DEATHS, report)

    def _again_or_never(
        self, attempt: _Attempt, error: Exception, kind: str, most: int, report: Report
    ) -> None:
        report(_sum(Progress(), attempt.told, -1))  # what is done again was not done
        key = (attempt.partition.number, kind)
        self._tries[key] = self._tries.get(key, 0) + 1
        if self._tries[key] < most:
            self._waiting.append(attempt.partition)  # behind the others: what hurt it may pass
        else:
            self._failures.append(Failure(partition=attempt.partition, error=error))

    def cancel(self) -> None:
        """Stop what still runs: what it has not committed is done again on resume."""
        running = list(self._running)
        if not running or not self._ray.is_initialized():
            return
        for stream in running:
            self._ray.cancel(stream, force=True)
        # Whoever sweeps behind us should not meet a writer; if one lingers, the next run waits.
        ends = [stream.completed() for stream in running]
        self._ray.wait(ends, num_returns=len(ends), timeout=_SECONDS_TO_STOP)


def _cannot_import(cause: Exception) -> WorkerError:
    errors = [line for line in str(cause).splitlines() if "Error: " in line or "error: " in line]
    return WorkerError(
        f"a node of the Ray cluster cannot run quire: {(errors or [_first_line(cause)])[-1]}\n"
        "install the same packages on every node as here, then resume"
    )


def _first_line(cause: object) -> str:
    """Of what may hold a whole traceback."""
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]


def _known(cause: Exception, partition: Partition) -> Exception:
    """What a task raised, as itself if it is one of ours."""
    if isinstance(cause, QuireError):
        return type(cause)(*cause.args)
    said = f"{type(cause).__name__}: {_first_line(cause)}"
    return WorkerError(f"partition {partition.number} failed with {said}")


def _sum(one: Progress, other: Progress, sign: int) -> Progress:
    return Progress(
        num_bytes=one.num_bytes + sign * other.num_bytes,
        documents=one.documents + sign * other.documents,
        tokens=one.tokens + sign * other.tokens,
        bad=one.bad + sign * other.bad,
    )
