"""Who runs the partitions: this process, several processes, or a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from quire.dataset.corpus.partition_job import PartitionJob, Report
from quire.dataset.corpus.partitions import Partition


class Engine(Protocol):
    """Runs a job on every partition, in any order, each at least once.

    Whatever an engine does, it may do again: a shard that is committed twice has the same bytes.
    """

    def run(self, job: PartitionJob, partitions: Sequence[Partition], report: Report) -> None:
        """Return when all partitions are committed, or raise the first error."""
