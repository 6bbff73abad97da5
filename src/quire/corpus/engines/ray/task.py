"""The function of a Ray task: it checks the node, then runs the job and yields its progress."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue
from socket import gethostname
from typing import Any

import quire
from quire.corpus.job import PartitionJob, Progress
from quire.corpus.lock import worker_lock
from quire.corpus.output import RUN
from quire.corpus.partitions import Partition
from quire.errors import WorkerError


def pack_partition(
    job: Sequence[Any], partition: Partition, threads: int, wanted: Mapping[str, str]
) -> Iterator[Progress | None]:
    """Yields progress, then None: a stream that ends without it was interrupted.

    ``job`` is a list of one reference, which Ray does not resolve, so that the worker process can
    cache the object: a tokenizer takes a second to unpickle.
    """
    _require_versions(wanted)
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    resolved = _resolved(job[0])
    _require_output(resolved)
    yield from _progress(resolved, partition)
    yield None


@cache
def versions() -> dict[str, str]:
    """The versions of the packages that determine the bytes of shards."""
    others = ("pyarrow", "numpy", "tokenizers")
    return {"quire": quire.__version__, **{name: version(name) for name in others}}


@lru_cache(maxsize=1)
def _resolved(reference: Any) -> PartitionJob:  # noqa: ANN401 - ray.ObjectRef
    import ray

    job: PartitionJob = ray.get(reference)
    return job


def _require_versions(wanted: Mapping[str, str]) -> None:
    for name, here in versions().items():
        if here != wanted[name]:
            raise WorkerError(
                f"node {gethostname()} has {name} {here} but the driver has {wanted[name]}, and "
                "the bytes may depend on it\ninstall the same version on every node, then resume"
            )


def _require_output(job: PartitionJob) -> None:
    """Raise if this node has another folder under that path: its shards would be lost."""
    if isinstance(job.work, Path) and not (job.work / RUN).exists():
        raise WorkerError(
            f"node {gethostname()} does not see the output {job.out}\nput it where all nodes see "
            "it under the same path (a shared file system or an object store)"
        )


def _progress(job: PartitionJob, partition: Partition) -> Iterator[Progress]:
    """Yields what the job reports while it runs, then raises its error if there is one."""
    messages: SimpleQueue[Progress | BaseException | None] = SimpleQueue()
    worker = threading.Thread(target=_work, args=(job, partition, messages), daemon=True)
    worker.start()
    while isinstance(message := messages.get(), Progress):
        yield message
    worker.join()
    if message is not None:
        raise message


def _work(job: PartitionJob, partition: Partition, messages: SimpleQueue[Any]) -> None:
    try:
        with worker_lock(job.work):  # a new driver waits for the tasks of a dead one
            job(partition, messages.put)
    except BaseException as error:  # raised in the thread that Ray watches
        messages.put(error)
    else:
        messages.put(None)
