"""What packing a corpus would take: partitions, memory, rows and hours, from a sample."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from quire.corpus.corpus import default_partition_size
from quire.corpus.partitions import MAX_PARTITIONS
from quire.corpus.sample import Sample
from quire.errors import InvalidOption
from quire.options import require_integer

TELLING = 1 << 20
"""Two samples differ by so many bytes of text, or their memory tells nothing of a larger one's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The figures for one number of workers."""

    workers: int
    partitions: int
    documents: int
    tokens: int
    num_bytes: int
    """Text to be read."""
    partition_bytes: int
    """Text of a partition, at most."""
    rows: int
    utilization: float
    memory_per_worker: int | None
    """Bytes, at the largest partition; None where the sample is too small to tell."""
    hours: float
    busy_workers: int
    """As many as there are partitions for."""

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self)


def estimate(
    sample: Sample,
    *,
    partition_size: int | None = None,
    workers: int,
    documents: int | None = None,
    tokens: int | None = None,
) -> Estimate:
    """The whole, as if all of it were like the sample and workers did not slow each other down.

    The whole is the sample's own corpus, or one of so many documents or tokens.

    >>> sample = Sample(num_bytes=4 << 20, documents=10, tokens=1000, rows=10, utilization=0.98,
    ...     seconds=2.0, peak_memory=28 << 20, warm_bytes=1 << 20, warm_memory=22 << 20,
    ...     total_bytes=4 << 20)
    >>> whole = estimate(sample, partition_size=6 << 20, workers=3, documents=100)
    >>> whole.partitions, whole.rows, whole.memory_per_worker >> 20, round(3600 * whole.hours)
    (7, 100, 32, 9)
    """
    require_integer("workers", workers, 1)
    times = _times(sample, documents, tokens)
    num_bytes = math.ceil(sample.num_bytes * times)
    partition_size = partition_size or default_partition_size(num_bytes)
    partitions = max(1, math.ceil(num_bytes / partition_size))
    if partitions > MAX_PARTITIONS:
        raise InvalidOption(
            f"partition_size={partition_size} would cut {num_bytes} bytes into {partitions} "
            f"partitions, more than {MAX_PARTITIONS}; raise it"
        )
    rounds = math.ceil(partitions / workers)
    return Estimate(
        workers=workers,
        partitions=partitions,
        documents=round(sample.documents * times),
        tokens=round(sample.tokens * times),
        num_bytes=num_bytes,
        partition_bytes=min(partition_size, num_bytes),
        rows=math.ceil(sample.rows * times),
        utilization=sample.utilization,
        memory_per_worker=_memory(sample, min(partition_size, num_bytes)),
        hours=sample.seconds * times * rounds / partitions / 3600,
        busy_workers=min(workers, partitions),
    )


def _memory(sample: Sample, partition_size: int) -> int | None:
    """On the line through the two parts that were packed; more bytes of text never take less."""
    if partition_size <= sample.num_bytes:
        return sample.peak_memory
    more = sample.num_bytes - sample.warm_bytes
    if more < TELLING:
        return None
    a_byte = (sample.peak_memory - sample.warm_memory) / more
    return sample.peak_memory + math.ceil(a_byte * (partition_size - sample.num_bytes))


def _times(sample: Sample, documents: int | None, tokens: int | None) -> float:
    """How many times as large as the sample the whole is."""
    if documents is not None and tokens is not None:
        raise InvalidOption("the size is given in documents and in tokens; give one of the two")
    if documents is not None:
        return require_integer("documents", documents, 1) / sample.documents
    if tokens is not None:
        return require_integer("tokens", tokens, 1) / sample.tokens
    return sample.total_bytes / sample.num_bytes
