"""What packing a corpus would take (partitions, memory, rows, hours), estimated from a sample."""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from quire.corpus.commits import Commit
from quire.corpus.corpus import Corpus, default_partition_size
from quire.corpus.engines.local import require_portable
from quire.corpus.job import PartitionJob, Progress
from quire.corpus.options import CorpusOptions
from quire.corpus.output import DATA, WORK
from quire.corpus.partitions import MAX_PARTITIONS, first_partitions, text_size
from quire.errors import InvalidOption
from quire.options import require_integer
from quire.options.names import setting
from quire.plan import register_strategy
from quire.plan.strategies import RowNumbers, registered_strategy
from quire.text import TokenizerLike

_WARM_UP = 8
"""The warm-up packs a sample that is this many times smaller."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Measurements of the packed part of a corpus, and the size of the whole."""

    num_bytes: int
    """Text that was read."""
    documents: int
    tokens: int
    rows: int
    utilization: float
    seconds: float
    """Of one worker with one thread, after the warm-up."""
    peak_memory: int
    """Peak memory of the worker, in bytes."""
    warm_bytes: int
    """Text that was packed as a warm-up, so that everything is loaded."""
    warm_memory: int
    """Peak memory of the worker after the warm-up."""
    total_bytes: int
    """Text of all inputs, as far as it is known."""


def pack_sample(
    inputs: Sequence[str | os.PathLike[str]],
    tokenizer: TokenizerLike | None,
    options: CorpusOptions,
    *,
    size: int,
    max_bad_records: int = 0,
) -> Sample:
    """Pack about ``size`` bytes from the start of the corpus and measure it.

    This runs in a new process, which has its own peak memory, and one thread like a worker among
    many.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        strategy = registered_strategy(options.strategy)
        require_portable(options.strategy, strategy)
        given = (inputs, tokenizer, options, strategy, size, max_bad_records)
        sample, said = pool.apply(_packed_with_warnings, given)
    for message in said:
        warnings.warn(message, stacklevel=2)
    return sample


def _packed_with_warnings(*given: Any) -> tuple[Sample, list[str]]:  # noqa: ANN401
    """What `_packed` returns, and its warnings, which the caller repeats."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        sample = _packed(*given)
    return sample, list(dict.fromkeys(str(one.message) for one in seen))


def _packed(
    inputs: Sequence[str | os.PathLike[str]],
    tokenizer: TokenizerLike | None,
    options: CorpusOptions,
    strategy: RowNumbers | None,
    size: int,
    budget: int,
) -> Sample:
    if strategy is not None:
        register_strategy(options.strategy, strategy)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    corpus = Corpus.open(inputs, tokenizer, options)
    size = min(size, corpus.options.partition_bytes, sum(file.size for file in corpus.files) or 1)
    warm = _pack_start(corpus, max(1, size // _WARM_UP), budget)
    warm_memory = _peak_memory()
    watched, total = _pack_start(corpus, size, budget), text_size(corpus)
    return watched.sample(options.max_length, warm.num_bytes, warm_memory, total)


def _pack_start(corpus: Corpus, size: int, budget: int) -> _Watched:
    """Pack the first shards of this size and measure it.

    More than one shard may be needed: the first may have only empty files, and a compressed file
    may have several.
    """
    options = replace(corpus.options, partition_size=size, index_only=False)
    corpus = replace(corpus, options=options)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        for name in (DATA, WORK):
            (out / name).mkdir()
        watched = _Watched(enough=size // 2)
        with suppress(_Enough):
            job = PartitionJob(
                corpus=corpus,
                out=out,
                work=out / WORK,
                plan_options=corpus.plan_options(),
                max_bad_records=budget,
            )
            for partition in first_partitions(corpus):
                job(partition, watched)
    return watched.stopped()


class _Enough(Exception):
    """The sample is large enough."""


class _Watched:
    """Sums up the progress of a job, and stops it after a shard when that is enough."""

    def __init__(self, enough: int) -> None:
        self.num_bytes = 0
        self._enough = enough
        self._documents = 0
        self._commits: list[Commit] = []
        self._start, self._seconds = time.perf_counter(), 0.0

    def __call__(self, progress: Progress) -> None:
        self.num_bytes += progress.num_bytes
        self._documents += progress.documents
        if progress.commit is not None:
            self._commits.append(progress.commit)
            if self.num_bytes >= self._enough:
                raise _Enough

    def stopped(self) -> _Watched:
        self._seconds = time.perf_counter() - self._start
        return self

    def sample(self, max_length: int, warm_bytes: int, warm_memory: int, total: int) -> Sample:
        rows = sum(commit.rows for commit in self._commits)
        tokens = sum(commit.tokens for commit in self._commits)
        content = sum(commit.content for commit in self._commits)
        if not rows:
            raise InvalidOption("the first documents give no row to estimate from")
        return Sample(
            num_bytes=self.num_bytes,
            documents=self._documents,
            tokens=tokens,
            rows=rows,
            utilization=content / (rows * max_length),
            seconds=self._seconds,
            peak_memory=_peak_memory(),
            warm_bytes=warm_bytes,
            warm_memory=warm_memory,
            total_bytes=max(total, self.num_bytes),
        )


def _peak_memory() -> int:
    """The peak memory of this process, in bytes."""
    try:  # getrusage includes the parent's memory before the fork
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


MIN_DIFFERENCE = 1 << 20
"""Memory is extrapolated only if the two samples differ by at least this many bytes of text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The estimate for one number of workers."""

    workers: int
    partitions: int
    documents: int
    tokens: int
    num_bytes: int
    """Text to be read."""
    partition_bytes: int
    """The most text in a partition."""
    rows: int
    utilization: float
    memory_per_worker: int | None
    """Bytes, for the largest partition; None if the sample is too small to tell."""
    hours: float
    busy_workers: int
    """Workers that have a partition to work on."""

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
    """An estimate that assumes uniform text and workers that do not slow each other down.

    It is for the sample's own corpus, or for one with this many documents or tokens.

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
            f"{setting('partition_size', partition_size)} would cut {num_bytes} bytes into "
            f"{partitions} partitions, more than {MAX_PARTITIONS}; raise it"
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
    """Extrapolate linearly from the warm-up and the sample; more text never needs less."""
    if partition_size <= sample.num_bytes:
        return sample.peak_memory
    more = sample.num_bytes - sample.warm_bytes
    if more < MIN_DIFFERENCE:
        return None
    per_byte = (sample.peak_memory - sample.warm_memory) / more
    return sample.peak_memory + math.ceil(per_byte * (partition_size - sample.num_bytes))


def require_question(workers: Sequence[int], documents: int | None, tokens: int | None) -> None:
    """Raise if no estimate can answer this, before anything is read."""
    for count in workers:
        require_integer("workers", count, 1)
    for name, size in (("documents", documents), ("tokens", tokens)):
        if size is not None:
            require_integer(name, size, 1)
    if documents is not None and tokens is not None:
        raise InvalidOption("the size is given in documents and in tokens; give only one")


def _times(sample: Sample, documents: int | None, tokens: int | None) -> float:
    """The size of the whole, relative to the sample."""
    require_question((), documents, tokens)
    if documents is not None:
        return documents / sample.documents
    if tokens is not None:
        return tokens / sample.tokens
    return sample.total_bytes / sample.num_bytes
