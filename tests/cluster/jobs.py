"""Jobs that fail on purpose, run by Ray instead of the real one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from quire.corpus.engines.ray import RayEngine
from quire.corpus.job import PartitionJob, Report
from quire.corpus.partitions import Partition


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return when the condition holds; raise if that takes too long."""
    deadline = time.monotonic() + 30
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("nothing happened for 30 s")
        time.sleep(0.02)


@dataclass(frozen=True, kw_only=True)
class FaultyJob(PartitionJob):
    """The real job, and a folder in which all nodes can leave marks."""

    marks: Path

    def mark_once(self, name: str) -> bool:
        """Whether this is the first time that the name is marked, on any node."""
        try:
            (self.marks / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


class DiesAfterItsCommit(FaultyJob):
    """Kills its process after the last commit and before its report, once on each of two nodes."""

    def __call__(self, partition: Partition, report: Report) -> None:
        import ray

        if self.mark_once(ray.get_runtime_context().get_node_id()):
            super().__call__(partition, lambda _: None)
            os.kill(os.getpid(), signal.SIGKILL)
        wait_until(lambda: len(list(self.marks.iterdir())) >= 2)  # a quick node must not do it all
        super().__call__(partition, report)


class TellsItsProcess(FaultyJob):
    """Records its process and node for a killer, and runs slowly."""

    def __call__(self, partition: Partition, report: Report) -> None:
        import ray

        mark = self.marks / f"{os.getpid()}.pid"
        mark.write_text(ray.get_runtime_context().get_node_id())
        try:
            time.sleep(0.2)
            super().__call__(partition, report)
            time.sleep(0.2)
        finally:
            mark.unlink(missing_ok=True)


class WaitsToBeHeard(FaultyJob):
    """Continues only after the driver has received its first report."""

    def __call__(self, partition: Partition, report: Report) -> None:
        def say(progress: Any) -> None:
            report(progress)
            wait_until((self.marks / "heard").exists)

        super().__call__(partition, say)


class FailsOnSome(FaultyJob):
    """Raises on partitions 2 and 5, until a mark says that it is repaired."""

    def __call__(self, partition: Partition, report: Report) -> None:
        (self.marks / f"{partition.number}-{time.monotonic_ns()}").touch()
        if partition.number in (2, 5) and not (self.marks / "mended").exists():
            raise ValueError("this partition is cursed")
        super().__call__(partition, report)


class FailsAlways(FaultyJob):
    """Raises on every partition."""

    def __call__(self, partition: Partition, report: Report) -> None:
        self.mark_once(str(partition.number))
        raise ValueError("all is cursed")


class DiesAlways(FaultyJob):
    """Kills its worker on partition 1."""

    def __call__(self, partition: Partition, report: Report) -> None:
        if partition.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        super().__call__(partition, report)


@dataclass(frozen=True, kw_only=True)
class FaultyEngine:
    """A Ray engine that runs the faulty form of a job."""

    fault: type[FaultyJob]
    marks: Path
    engine: RayEngine

    def started(self) -> AbstractContextManager[None]:
        return self.engine.started()

    def run(self, job: PartitionJob, partitions: Any, report: Report) -> None:
        self.marks.mkdir(exist_ok=True)
        known = {field.name: getattr(job, field.name) for field in fields(PartitionJob)}
        self.engine.run(self.fault(**known, marks=self.marks), partitions, report)
