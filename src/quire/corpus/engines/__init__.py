"""Engines run partitions: in this process, in several processes, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from quire.corpus.engines.local import LocalEngine
from quire.corpus.engines.ray import RayEngine
from quire.corpus.job import PartitionJob, Report
from quire.corpus.partitions import Partition
from quire.errors import InvalidOption, unknown_name

ENGINES = ("local", "ray")


class Engine(Protocol):
    """Runs a job on every partition, in any order, at least once.

    Repeating a partition is harmless: a shard that is committed twice has the same bytes.
    """

    def started(self) -> AbstractContextManager[None]:
        """A context in which `run` works; raises before anything is written if it cannot."""

    def run(self, job: PartitionJob, partitions: Sequence[Partition], report: Report) -> None:
        """Return when all partitions are committed, or raise the first error."""


def choose_engine(engine: Engine | str | None, workers: int | None) -> Engine:
    """The engine of that name, or the engine itself.

    >>> choose_engine("local", 2)
    LocalEngine(workers=2, fork=False)
    """
    if engine is None or engine == "local":
        return LocalEngine(workers=1 if workers is None else workers)
    if engine == "ray":
        return RayEngine(workers=workers)
    if isinstance(engine, str):
        raise unknown_name("engine", engine, ENGINES)
    if workers is not None:
        raise InvalidOption(
            f"workers={workers} was given together with {type(engine).__name__}, which has its "
            "own option for it; leave one of them out"
        )
    return engine
