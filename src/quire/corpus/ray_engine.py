"""Partitions as tasks of a Ray cluster: the same function, the same bytes, on many machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from quire.corpus.partition_job import PartitionJob, Report
from quire.corpus.partitions import Partition
from quire.corpus.ray_connection import connected, imported_ray
from quire.corpus.ray_needs import Needs
from quire.corpus.ray_tasks import Tasks
from quire.errors import InvalidOption
from quire.options import require_integer


@dataclass(frozen=True, kw_only=True)
class RayEngine:
    """Runs every partition as one task, some of them at a time.

    All nodes must see inputs and output at the same place, and have the same quire and pyarrow.
    A task whose worker or node dies is done again; a partition that fails does not hold up the
    others. Memory on the driver: a few numbers for each partition.
    """

    address: str | None = None
    """Of a cluster, HOST:PORT; None: what ``RAY_ADDRESS`` names, one that was started on this
    machine, or one that ends with the run."""
    workers: int | None = None
    """Tasks at a time; None: as many as the cluster has room for, also when it grows."""
    cpus: float = 1
    """What each task is given; a tokenizer uses so many threads."""
    memory: int | None = None
    """Bytes that Ray sets aside for each task; None: it does not count them."""
    patience: float = 300
    """Seconds to wait for a node with room for a task, before that is an error."""
    init_options: Mapping[str, Any] = field(default_factory=dict)
    """Passed on to `ray.init`, where this engine connects: ``num_cpus``, ``runtime_env``, …"""

    def __post_init__(self) -> None:
        if self.workers is not None:
            require_integer("workers", self.workers, 1)
        if self.memory is not None:
            require_integer("memory", self.memory, 1)
        for name in ("cpus", "patience"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise InvalidOption(f"{name} is {value!r} but must be a number above 0")

    @contextmanager
    def started(self) -> Iterator[None]:
        """A block with a connection to the cluster."""
        with connected(self.address, self.init_options):
            yield

    def run(self, job: PartitionJob, partitions: Sequence[Partition], report: Report) -> None:
        """Return when all partitions are committed, or raise when those that can be are."""
        needs = Needs(cpus=self.cpus, memory=self.memory)
        job = _seen_from_anywhere(job)
        tasks = Tasks(imported_ray(), job, needs, self.workers, self.patience)
        try:
            tasks.run(partitions, report)
        finally:
            tasks.cancel()


def _seen_from_anywhere(job: PartitionJob) -> PartitionJob:
    """The job with whole paths: a task's working directory is not that of the driver."""
    files = tuple(replace(file, path=file.path.absolute()) for file in job.files)
    return replace(job, out=job.out.absolute(), work=job.work.absolute(), files=files)
