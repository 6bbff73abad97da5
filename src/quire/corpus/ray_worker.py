"""What happens inside a task: the node is looked at, then the job is done and told live."""

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
from quire.corpus.lock import worker_lock
from quire.corpus.output import RUN
from quire.corpus.partition_job import PartitionJob, Progress
from quire.corpus.partitions import Partition
from quire.errors import WorkerError


def pack_partition(
    held: Sequence[Any], partition: Partition, threads: int, wanted: Mapping[str, str]
) -> Iterator[Progress | None]:
    """Progress as it is made; None behind the last of it, so that no silent end is taken for one.

    ``held`` is a list of one reference, so that the worker can keep what it refers to: a tokenizer
    takes a second to unpickle.
    """
    _require_versions(wanted)
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    job = _job(held[0])
    _require_output(job)
    yield from _told(job, partition)
    yield None


@cache
def versions() -> dict[str, str]:
    """Of the packages that bytes depend on."""
    others = ("pyarrow", "numpy", "tokenizers")
    return {"quire": quire.__version__, **{name: version(name) for name in others}}


@lru_cache(maxsize=1)
def _job(reference: Any) -> PartitionJob:  # noqa: ANN401 - ray.ObjectRef
    import ray

    job: PartitionJob = ray.get(reference)
    return job


def _require_versions(wanted: Mapping[str, str]) -> None:
    for name, here in versions().items():
        if here != wanted[name]:
            raise WorkerError(
                f"node {gethostname()} has {name} {here} but the driver has {wanted[name]}, and "
                "bytes may depend on it\ninstall the same on every node, then resume"
            )


def _require_output(job: PartitionJob) -> None:
    """Raise where a folder of the same name is another one: its shards would be lost."""
    if isinstance(job.work, Path) and not (job.work / RUN).exists():
        raise WorkerError(
            f"node {gethostname()} does not see the output {job.out}\nput it where all nodes see "
            "it at the same place (a shared file system, or an object store)"
        )


def _told(job: PartitionJob, partition: Partition) -> Iterator[Progress]:
    """What the job reports, while it works; then what it raised, if it did."""
    said: SimpleQueue[Progress | BaseException | None] = SimpleQueue()
    worker = threading.Thread(target=_work, args=(job, partition, said), daemon=True)
    worker.start()
    while isinstance(word := said.get(), Progress):
        yield word
    worker.join()
    if word is not None:
        raise word


def _work(job: PartitionJob, partition: Partition, said: SimpleQueue[Any]) -> None:
    try:
        with worker_lock(job.work):  # a driver that takes over waits for tasks of a dead one
            job(partition, said.put)
    except BaseException as error:  # raised again where Ray sees it
        said.put(error)
    else:
        said.put(None)
