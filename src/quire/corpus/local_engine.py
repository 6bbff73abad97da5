"""Partitions on this machine: in this process, or in several that are watched."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler

from quire.corpus.lock import worker_lock
from quire.corpus.output import errors_of_writing
from quire.corpus.partition_job import PartitionJob, Progress, Report
from quire.corpus.partitions import Partition
from quire.errors import InvalidOption, QuireError, WorkerError
from quire.options import require_integer
from quire.plan.strategies import RowNumbers

_TRIES = 3
"""How often a partition is begun before the deaths of its workers are taken for its fault."""


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """As many processes as asked for; one is this process itself."""

    workers: int = 1

    def __post_init__(self) -> None:
        require_integer("workers", self.workers, 1)

    def started(self) -> AbstractContextManager[None]:
        """A block that needs nothing."""
        return nullcontext()

    def run(self, job: PartitionJob, partitions: Sequence[Partition], report: Report) -> None:
        """Return when all partitions are committed, or raise the first error."""
        if self.workers == 1:
            for partition in partitions:
                job(partition, report)
            return
        pool = _Pool(job, min(self.workers, len(partitions)))
        try:
            pool.run(partitions, report)
        finally:
            pool.stop()


class _Worker:
    """A process that is told its job with its first partition.

    The job holds the tokenizer, which is more than a pipe takes: as an argument of the process it
    would keep the next process from being started until this one has imported all that it needs.
    """

    def __init__(self, job: memoryview, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_work, args=(theirs, threads), daemon=True
        )
        self.partition: Partition | None = None
        self._untold: memoryview | None = job
        self.process.start()
        theirs.close()

    def give(self, partition: Partition) -> None:
        self.partition = partition
        if self._untold is not None:
            self.connection.send_bytes(self._untold)
            self._untold = None
        self.connection.send(partition)


def require_portable(name: str, strategy: RowNumbers | None) -> None:
    """Raise unless the function of a registered strategy can be found by other processes."""
    try:
        ForkingPickler.dumps(strategy)
    except Exception as error:  # whatever pickle raises for what has no name
        raise InvalidOption(
            f"strategy {name!r} cannot be sent to worker processes: {error}; define its function "
            "at the top of a module, or use workers=1"
        ) from error


def _as_bytes(job: PartitionJob) -> memoryview:
    require_portable(job.options.strategy, job.strategy)
    try:
        return ForkingPickler.dumps(job)
    except Exception as error:  # whatever a tokenizer's own code raises
        raise InvalidOption(
            f"the tokenizer cannot be sent to other processes: {error}; use workers=1, or define "
            "it at the top of a module"
        ) from error


class _Pool:
    def __init__(self, job: PartitionJob, count: int) -> None:
        self._job = _as_bytes(job)  # once, not for every worker
        self._threads = max(1, (os.cpu_count() or 1) // max(1, count))
        self._workers = [_Worker(self._job, self._threads) for _ in range(count)]
        self._tries: dict[int, int] = {}

    def run(self, partitions: Sequence[Partition], report: Report) -> None:
        waiting = deque(partitions)
        self._hand_out(waiting)
        while any(worker.partition is not None for worker in self._workers):
            for ready in wait([worker.connection for worker in self._workers]):
                worker = next(w for w in self._workers if w.connection is ready)
                self._listen(worker, waiting, report)
            self._hand_out(waiting)

    def _hand_out(self, waiting: deque[Partition]) -> None:
        """Give every worker something to do, as long as there is something."""
        for place in range(len(self._workers)):
            while waiting and self._workers[place].partition is None:
                worker = self._workers[place]
                try:
                    worker.give(waiting.popleft())
                except OSError:  # it died while it was idle
                    self._bury(worker, waiting, place)

    def _listen(self, worker: _Worker, waiting: deque[Partition], report: Report) -> None:
        try:
            said = worker.connection.recv()
        except (EOFError, OSError):
            self._bury(worker, waiting, self._workers.index(worker))
            return
        if isinstance(said, Progress):
            report(said)
        elif isinstance(said, BaseException):
            raise said
        else:
            worker.partition = None

    def _bury(self, worker: _Worker, waiting: deque[Partition], place: int) -> None:
        """Put another worker in its place, and its partition back; give up after some tries."""
        worker.process.join()
        worker.connection.close()
        number = -1 if worker.partition is None else worker.partition.number
        self._tries[number] = self._tries.get(number, 0) + 1
        if self._tries[number] >= _TRIES:
            raise WorkerError(
                f"{_TRIES} workers died on partition {number}, the last with "
                f"{_cause(worker.process.exitcode)}; if it was out of memory, lower "
                "partition_size (in a new output) or workers, then resume"
            )
        if worker.partition is not None:
            waiting.appendleft(worker.partition)
        self._workers[place] = _Worker(self._job, self._threads)

    def stop(self) -> None:
        """End all workers, now: whatever they have not committed is done again on resume."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()


def _cause(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return signal.Signals(-exitcode).name
    return f"exit code {exitcode}"


def _work(connection: Connection, threads: int) -> None:
    """The life of a worker: its job and partitions in, progress and 'done' or an error out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        job: PartitionJob = connection.recv()
    except (EOFError, OSError):
        return
    with ExitStack() as held:
        try:
            with errors_of_writing(job.out):
                held.enter_context(worker_lock(job.work))
        except QuireError as error:
            connection.send(error)
            return
        _serve(connection, job)


def _serve(connection: Connection, job: PartitionJob) -> None:
    # Outside the process's first thread a tokenizer takes a fifth less time. That is measured (on
    # Linux, tokenizers 0.23); why is not known, and settings of malloc's trimming change nothing.
    with ThreadPoolExecutor(max_workers=1) as thread:
        while True:
            try:
                partition = connection.recv()
            except (EOFError, OSError):
                return
            try:
                thread.submit(job, partition, connection.send).result()
                connection.send(None)
            except Exception as error:
                connection.send(_portable(error, partition))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _portable(error: Exception, partition: Partition) -> Exception:
    """The error with its traceback in it, as one that every process can read."""
    trace = "".join(traceback.format_exception(error))
    if isinstance(error, QuireError):
        known: Exception = type(error)(*error.args)
    else:
        known = WorkerError(
            f"partition {partition.number} failed with {type(error).__name__}: {error}"
        )
    known.add_note(f"In a worker process:\n{trace}")
    return known
