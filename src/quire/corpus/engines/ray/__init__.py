"""Partitions as tasks of a Ray cluster: the same function and the same bytes as locally."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from quire.corpus.engines.ray.cluster import TaskResources, connected, imported_ray
from quire.corpus.engines.ray.scheduler import TaskScheduler
from quire.corpus.job import PartitionJob, Report
from quire.corpus.partitions import Partition
from quire.errors import InvalidOption
from quire.options import require_integer


@dataclass(frozen=True, kw_only=True)
class RayEngine:
    """Runs every partition as one task.

    All nodes must see inputs and output under the same paths, and have the same versions of quire
    and pyarrow. A task whose worker or node dies is repeated; a partition that fails does not stop
    the others. Memory on the driver: a few numbers per partition.
    """

    address: str | None = None
    """HOST:PORT of a cluster; None: that of ``RAY_ADDRESS``, one that was started on this machine,
    or a new one that ends with the run."""
    workers: int | None = None
    """Concurrent tasks; None: as many as the cluster has room for, also when it grows."""
    cpus: float = 1
    """CPUs of a task; a tokenizer uses as many threads."""
    memory: int | None = None
    """Bytes that Ray reserves for each task; None: none."""
    patience: float = 300
    """Seconds to wait for a node with room for a task before raising an error."""
    init_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `ray.init`, if this engine connects: ``num_cpus``, ``runtime_env``, …"""

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
        """A context with a connection to the cluster."""
        with connected(self.address, self.init_options):
            yield

    def run(self, job: PartitionJob, partitions: Sequence[Partition], report: Report) -> None:
        """Return when all partitions are committed, or raise when no more can be."""
        resources = TaskResources(cpus=self.cpus, memory=self.memory)
        job = _with_absolute_paths(job)
        scheduler = TaskScheduler(imported_ray(), job, resources, self.workers, self.patience)
        try:
            scheduler.run(partitions, report)
        finally:
            scheduler.cancel()


def _with_absolute_paths(job: PartitionJob) -> PartitionJob:
    """The job with absolute paths, because tasks have another working directory."""
    files = tuple(replace(file, path=file.path.absolute()) for file in job.corpus.files)
    corpus = replace(job.corpus, files=files)
    return replace(job, corpus=corpus, out=job.out.absolute(), work=job.work.absolute())
