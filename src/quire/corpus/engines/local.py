"""Partitions on this machine: in this process, or in supervised worker processes."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler

import pyarrow as pa

from quire.corpus.engines.failures import portable_error
from quire.corpus.job import PartitionJob, Progress, Report
from quire.corpus.lock import close_inherited_locks, worker_lock
from quire.corpus.output import write_errors
from quire.corpus.partitions import Partition
from quire.errors import InvalidOption, QuireError, WorkerError
from quire.options import require_integer
from quire.options.names import option
from quire.plan.strategies import RowNumbers
from quire.storage import RemotePath

_TRIES = 3
"""Attempts at a partition before the deaths of its workers are attributed to it."""


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """Runs partitions in this process, or in several worker processes."""

    workers: int = 1
    fork: bool = False
    """Whether workers may be forks of this process, which share the tokenizer that it has loaded.

    Only for a process whose threads are known to survive that, like the command line's. Forks are
    used on Linux, for local files, if there is a worker for every core: libraries whose threads a
    fork does not have then need none. Otherwise each worker is a new process.
    """

    def __post_init__(self) -> None:
        require_integer("workers", self.workers, 1)

    def started(self) -> AbstractContextManager[None]:
        """A context that does nothing."""
        return nullcontext()

    def run(self, job: PartitionJob, partitions: Sequence[Partition], report: Report) -> None:
        """Return when all partitions are committed, or raise the first error."""
        if self.workers == 1:
            for partition in partitions:
                job(partition, report)
            return
        pool = _Pool(job, min(self.workers, len(partitions)), fork=self.fork)
        try:
            pool.run(partitions, report)
        finally:
            pool.stop()


def keep_memory(*, is_threaded: bool = True) -> None:
    """Let this process use the memory that it frees again, instead of new memory.

    Arrow's own allocator returns large blocks to the system and takes huge pages, whose first use
    is slow, above all in a virtual machine (decision 19 has the figures). It is for whole
    processes, so only the command line and worker processes call this.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_MMAP_THRESHOLD, 32 << 20)  # the largest that glibc accepts
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        if not is_threaded:  # heaps of other threads are returned to the system once they are empty
            libc.mallopt(_ARENA_MAX, 1)


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Of glibc's malloc.h."""


class _Worker:
    """A process that runs partitions: a fork that has the job, or a new process that receives it.

    A new process receives the job together with its first partition. The job holds the tokenizer
    and is larger than a pipe's buffer: as an argument of the process, it would delay the start of
    the next process until this one has imported everything.
    """

    def __init__(self, job: PartitionJob | memoryview, threads: int) -> None:
        forked = job if isinstance(job, PartitionJob) else None
        new, fork = multiprocessing.get_context("spawn"), multiprocessing.get_context("fork")
        context = new if forked is None else fork
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_work, args=(theirs, threads, forked), daemon=True
        )
        self.partition: Partition | None = None
        self._unsent_job = job if isinstance(job, memoryview) else None
        self.process.start()
        theirs.close()

    def give(self, partition: Partition) -> None:
        self.partition = partition
        if self._unsent_job is not None:
            self.connection.send_bytes(self._unsent_job)
            self._unsent_job = None
        self.connection.send(partition)


def require_portable(name: str, strategy: RowNumbers | None) -> None:
    """Raise if a registered strategy's function cannot be sent to other processes."""
    try:
        ForkingPickler.dumps(strategy)
    except Exception as error:  # pickle raises several types
        raise InvalidOption(
            f"strategy {name!r} cannot be sent to worker processes: {error}; define its function "
            "at the top level of a module, or use workers=1"
        ) from error


def _as_bytes(job: PartitionJob) -> memoryview:
    try:
        return ForkingPickler.dumps(job)
    except Exception as error:  # a tokenizer's own code may raise anything
        raise InvalidOption(
            f"the tokenizer cannot be sent to other processes: {error}; use workers=1, or define "
            "it at the top level of a module"
        ) from error


def _can_fork(job: PartitionJob, threads: int) -> bool:
    """Whether forks of this process can run the job; see `LocalEngine.fork`."""
    paths = [job.out, *(file.path for file in job.corpus.files)]
    is_local = not any(isinstance(path, RemotePath) for path in paths)
    return sys.platform == "linux" and threads == 1 and is_local


class _Pool:
    def __init__(self, job: PartitionJob, count: int, *, fork: bool) -> None:
        require_portable(job.corpus.options.strategy, job.strategy)
        self._threads = max(1, (os.cpu_count() or 1) // max(1, count))
        self._job = job
        can_fork = fork and _can_fork(job, self._threads)
        start = job if can_fork else self._portable_job
        self._workers = [_Worker(start, self._threads) for _ in range(count)]
        self._tries: dict[int, int] = {}
        self._warned: set[str] = set()

    @cached_property
    def _portable_job(self) -> memoryview:
        return _as_bytes(self._job)

    def run(self, partitions: Sequence[Partition], report: Report) -> None:
        waiting = deque(partitions)
        self._assign(waiting)
        while any(worker.partition is not None for worker in self._workers):
            for ready in wait([worker.connection for worker in self._workers]):
                worker = next(w for w in self._workers if w.connection is ready)
                self._receive(worker, waiting, report)
            self._assign(waiting)

    def _assign(self, waiting: deque[Partition]) -> None:
        """Give every idle worker a partition, as long as there are any."""
        for index in range(len(self._workers)):
            while waiting and self._workers[index].partition is None:
                worker = self._workers[index]
                try:
                    worker.give(waiting.popleft())
                except OSError:  # it died while it was idle
                    self._replace(worker, waiting)

    def _receive(self, worker: _Worker, waiting: deque[Partition], report: Report) -> None:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            self._replace(worker, waiting)
            return
        if isinstance(message, Progress):
            report(message)
        elif isinstance(message, Warning):
            self._warn(message)
        elif isinstance(message, BaseException):
            raise message
        else:
            worker.partition = None

    def _warn(self, message: Warning) -> None:
        """Repeat a worker's warning here, once for all workers."""
        if str(message) not in self._warned:
            self._warned.add(str(message))
            warnings.warn(message, stacklevel=2)

    def _replace(self, worker: _Worker, waiting: deque[Partition]) -> None:
        """Start another worker for a dead one and requeue its partition; give up after some."""
        worker.process.join()
        worker.connection.close()
        number = -1 if worker.partition is None else worker.partition.number
        self._tries[number] = self._tries.get(number, 0) + 1
        if self._tries[number] >= _TRIES:
            raise WorkerError(
                f"{_TRIES} workers died on partition {number}, the last with "
                f"{_cause(worker.process.exitcode)}; if they ran out of memory, lower "
                f"{option('partition_size')} (in a new output) or {option('workers')}, then resume"
            )
        if worker.partition is not None:
            waiting.appendleft(worker.partition)
        # Never a fork: by now this process may have other threads, such as a progress display's.
        self._workers[self._workers.index(worker)] = _Worker(self._portable_job, self._threads)

    def stop(self) -> None:
        """Kill all workers: what they have not committed is repeated on resume."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()


def _cause(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return signal.Signals(-exitcode).name
    return f"exit code {exitcode}"


def _work(connection: Connection, threads: int, job: PartitionJob | None) -> None:
    """Run in a worker: receives a job and partitions, sends progress, then None or an error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a fork has the handler of the command line
    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    if job is None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
    else:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads are not in a fork
        close_inherited_locks()
    keep_memory(is_threaded=threads > 1)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    warnings.showwarning = lambda message, *_, **__: connection.send(message)
    try:
        job = job or connection.recv()
    except (EOFError, OSError):
        return
    with ExitStack() as held:
        try:
            with write_errors(job.out):
                held.enter_context(worker_lock(job.work))
        except QuireError as error:
            connection.send(error)
            return
        _serve(connection, job)


def _serve(connection: Connection, job: PartitionJob) -> None:
    # A tokenizer takes a fifth less time outside the process's main thread. That is measured (on
    # Linux, tokenizers 0.23); the reason is unknown, and settings of malloc make no difference.
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
                connection.send(_with_traceback(error, partition))


def _with_traceback(error: Exception, partition: Partition) -> Exception:
    trace = "".join(traceback.format_exception(error))
    return portable_error(error, partition, f"In a worker process:\n{trace}")


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
