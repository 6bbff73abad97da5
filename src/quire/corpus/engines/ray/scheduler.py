"""Schedules the tasks of a run on a Ray cluster: submits, monitors and retries them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from quire.corpus.engines.failures import Failure, failure_of, first_line, portable_error
from quire.corpus.engines.ray.cluster import TaskResources
from quire.corpus.engines.ray.task import pack_partition, versions
from quire.corpus.job import PartitionJob, Progress, Report
from quire.corpus.partitions import Partition
from quire.errors import InvalidOption, OutputError, QuireError, StorageError, WorkerError
from quire.options.names import option

_DEATHS = 10
"""Attempts before deaths of workers are attributed to the partition: nodes die, too."""
_ERRORS = 3
"""Attempts after errors that may be transient: of the disk, or unknown ones."""
_MOST_FAILURES = 20
"""Failed partitions after which no new one starts: the corpus or the disk is to blame."""
_NO_IMPORT = "The remote function failed to import on the worker"
_SECONDS_TO_WAIT, _SECONDS_BETWEEN_COUNTS = 1.0, 5.0
_SECONDS_TO_FETCH, _SECONDS_TO_STOP = 60.0, 30.0


@dataclass(kw_only=True)
class _Attempt:
    """One task: its partition, and the progress that it has reported."""

    partition: Partition
    progress: Progress = field(default_factory=Progress)
    done: bool = False


class TaskScheduler:
    """Keeps a limited number of tasks in flight; other partitions wait on the driver."""

    def __init__(
        self,
        ray: Any,  # noqa: ANN401 - a package without types
        job: PartitionJob,
        resources: TaskResources,
        max_tasks: int | None,
        patience: float,
    ) -> None:
        self._ray, self._resources, self._patience = ray, resources, patience
        self._max_tasks = max_tasks
        # Ray's own retries are off: they are silent, and endless when memory runs out.
        options = {"num_returns": "streaming", "max_retries": 0, **resources.options()}
        self._task = ray.remote(**options)(pack_partition)
        self._job = ray.put(job)  # the tokenizer is sent once to each node
        self._files = job.corpus.files
        self._running: dict[Any, _Attempt] = {}
        self._waiting: deque[Partition] = deque()
        self._tries: dict[tuple[int, str], int] = {}
        self._failures: list[Failure] = []
        self._last_message = time.monotonic()
        self._counted_at, self._slots = -math.inf, 0

    def run(self, partitions: Sequence[Partition], report: Report) -> None:
        """Return when all are committed, or raise when no more can be."""
        self._waiting.extend(partitions)
        while self._waiting or self._running:
            self._submit()
            ready, _ = self._ray.wait(list(self._running), timeout=_SECONDS_TO_WAIT)
            for stream in ready:
                self._last_message = time.monotonic()
                self._receive(stream, report)
            self._require_room()
        if self._failures:
            raise failure_of(self._failures, self._files)

    def _submit(self) -> None:
        if len(self._failures) >= _MOST_FAILURES:
            self._waiting.clear()
        while self._waiting and len(self._running) < self._limit():
            partition = self._waiting.popleft()
            threads = max(1, int(self._resources.cpus))
            stream = self._task.remote([self._job], partition, threads, versions())
            self._running[stream] = _Attempt(partition=partition)

    def _limit(self) -> int:
        """Twice the slots, so that workers never wait and an autoscaler sees demand."""
        return self._max_tasks or max(1, 2 * self._num_slots())

    def _num_slots(self) -> int:
        if time.monotonic() - self._counted_at > _SECONDS_BETWEEN_COUNTS:
            self._slots = self._resources.slots(self._ray.nodes())
            self._counted_at = time.monotonic()
        return self._slots

    def _require_room(self) -> None:
        """Raise if no task reported for long and no node has room for one."""
        if time.monotonic() - self._last_message < self._patience or self._num_slots():
            return
        raise InvalidOption(
            f"for {self._patience:g} s no node of the Ray cluster had room for a task of "
            f"{self._resources}\nlower the resources of a task, or add nodes, then resume"
        )

    def _receive(self, stream: Any, report: Report) -> None:  # noqa: ANN401
        """Handle the next message of a task: progress, None for done, its end, or its error."""
        attempt, errors = self._running[stream], self._ray.exceptions
        try:
            message = self._ray.get(next(stream), timeout=_SECONDS_TO_FETCH)
        except StopIteration:
            del self._running[stream]
            if not attempt.done:
                self._died(attempt, "an unexpected end", report)
        except errors.RayTaskError as error:
            del self._running[stream]
            self._raised(attempt, error, report)
        except errors.RayError as error:
            del self._running[stream]
            self._died(attempt, f"{type(error).__name__}: {error}", report)
        else:
            self._handle(attempt, message, report)

    def _handle(self, attempt: _Attempt, message: Progress | None, report: Report) -> None:
        if message is None:
            attempt.done = True
            return
        attempt.progress = _sum(attempt.progress, message, 1)
        report(message)

    def _raised(self, attempt: _Attempt, error: Any, report: Report) -> None:  # noqa: ANN401
        cause = getattr(error, "cause", error)
        is_node_failure = isinstance(cause, self._ray.exceptions.RaySystemError)
        if is_node_failure or str(cause).startswith(_NO_IMPORT):
            cause = _cannot_import(cause)
        known = portable_error(cause, attempt.partition, f"In a Ray task:\n{error}")
        if type(cause) is WorkerError:  # the node cannot run any partition
            raise known
        transient = isinstance(cause, OutputError | StorageError)
        transient = transient or not isinstance(cause, QuireError)
        self._retry_or_fail(attempt, known, "error", _ERRORS if transient else 1, report)

    def _died(self, attempt: _Attempt, cause: str, report: Report) -> None:
        died = WorkerError(
            f"{_DEATHS} workers died on partition {attempt.partition.number}, the last with "
            f"{first_line(cause)}; if they ran out of memory, give tasks more memory, or lower "
            f"{option('partition_size')} (in a new output)"
        )
        self._retry_or_fail(attempt, died, "death", _DEATHS, report)

    def _retry_or_fail(
        self, attempt: _Attempt, error: Exception, kind: str, most: int, report: Report
    ) -> None:
        report(_sum(Progress(), attempt.progress, -1))  # it will be repeated
        key = (attempt.partition.number, kind)
        self._tries[key] = self._tries.get(key, 0) + 1
        if self._tries[key] < most:
            # After the others, as the cause may be transient.
            self._waiting.append(attempt.partition)
        else:
            self._failures.append(Failure(partition=attempt.partition, error=error))

    def cancel(self) -> None:
        """Stop running tasks: what they have not committed is repeated on resume."""
        running = list(self._running)
        if not running or not self._ray.is_initialized():
            return
        for stream in running:
            self._ray.cancel(stream, force=True)
        # Temporary files are removed next, so no task should still be writing.
        ends = [stream.completed() for stream in running]
        self._ray.wait(ends, num_returns=len(ends), timeout=_SECONDS_TO_STOP)


def _cannot_import(cause: Exception) -> WorkerError:
    errors = [line for line in str(cause).splitlines() if "Error: " in line or "error: " in line]
    return WorkerError(
        f"a node of the Ray cluster cannot run quire: {(errors or [first_line(cause)])[-1]}\n"
        "install the same packages on every node, then resume"
    )


def _sum(one: Progress, other: Progress, sign: int) -> Progress:
    return Progress(
        num_bytes=one.num_bytes + sign * other.num_bytes,
        documents=one.documents + sign * other.documents,
        tokens=one.tokens + sign * other.tokens,
        bad=one.bad + sign * other.bad,
    )
