"""Who runs the partitions: this process, several processes, or a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from quire.corpus.local_engine import LocalEngine
from quire.corpus.partition_job import PartitionJob, Report
from quire.corpus.partitions import Partition
from quire.corpus.ray_engine import RayEngine
from quire.errors import InvalidOption, unknown_name

ENGINES = ("local", "ray")


class Engine(Protocol):
    """Runs a job on every partition, in any order, each at least once.

    Whatever an engine does, it may do again: a shard that is committed twice has the same bytes.
    """

    def started(self) -> AbstractContextManager[None]:
        """A block in which it can run; raises, before anything is written, if it never could."""

    def run(self, job: PartitionJob, partitions: Sequence[Partition], report: Report) -> None:
        """Return when all partitions are committed, or raise the first error."""


def choose_engine(engine: Engine | str | None, workers: int | None) -> Engine:
    """The engine of that name, or the given one as it is.

    >>> choose_engine("local", 2)
    LocalEngine(workers=2)
    """
    if engine is None or engine == "local":
        return LocalEngine(workers=1 if workers is None else workers)
    if engine == "ray":
        return RayEngine(workers=workers)
    if isinstance(engine, str):
        raise unknown_name("engine", engine, ENGINES)
    if workers is not None:
        raise InvalidOption(
            f"workers={workers} is given beside {type(engine).__name__}, which has workers of its "
            "own; leave one of them out"
        )
    return engine
