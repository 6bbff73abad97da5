"""A little of a corpus packed in a process of its own, to learn what the whole would take."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from quire.corpus.commits import Commit
from quire.corpus.corpus import Corpus
from quire.corpus.engines.local import require_portable
from quire.corpus.job import PartitionJob, Progress
from quire.corpus.options import CorpusOptions
from quire.corpus.output import DATA, WORK
from quire.corpus.partitions import first_partitions, text_size
from quire.errors import InvalidOption
from quire.plan import register_strategy
from quire.plan.strategies import RowNumbers, registered_strategy
from quire.text import TokenizerLike

_WARMING = 8
"""Before the sample, one that is so many times smaller is packed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """The figures of the part that was packed, and the size of the whole."""

    num_bytes: int
    """Text that was read."""
    documents: int
    tokens: int
    rows: int
    utilization: float
    seconds: float
    """Of one worker with one thread, once it is warm."""
    peak_memory: int
    """The most bytes that the worker held."""
    warm_bytes: int
    """Text of a smaller part that was packed before, so that all is loaded."""
    warm_memory: int
    """The most bytes that the worker held up to then."""
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
    """About ``size`` bytes from the start of the corpus, read, encoded, packed and written once.

    In a new process, whose peak memory is its own, and which has one thread, as a worker among
    many has.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        strategy = registered_strategy(options.strategy)
        require_portable(options.strategy, strategy)
        given = (inputs, tokenizer, options, strategy, size, max_bad_records)
        return pool.apply(_packed, given)


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
    warm = _pack_start(corpus, max(1, size // _WARMING), budget)
    warm_memory = _peak_memory()
    watched, total = _pack_start(corpus, size, budget), text_size(corpus)
    return watched.sample(options.max_length, warm.num_bytes, warm_memory, total)


def _pack_start(corpus: Corpus, size: int, budget: int) -> _Watched:
    """What was told while the first shards of this size were packed.

    The first may hold nothing but empty files, and that of a compressed file be one of many.
    """
    options = replace(corpus.options, partition_size=size, index_only=False)
    corpus = replace(corpus, options=options)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        for name in (DATA, WORK):
            (out / name).mkdir()
        watched = _Watched(enough=size // 2)
        with suppress(_Enough):
            job = PartitionJob(corpus=corpus, out=out, work=out / WORK, max_bad_records=budget)
            for partition in first_partitions(corpus):
                job(partition, watched)
    return watched.stopped()


class _Enough(Exception):
    """The sample is large enough."""


class _Watched:
    """Adds up what a job tells, and stops it behind a shard when that is enough."""

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
        tallies = [commit.ledger.tokens for commit in self._commits]
        content = sum(tally.emitted + tally.overlap for tally in tallies)
        if not rows:
            raise InvalidOption("the first documents make no row, so there is nothing to estimate")
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
    """The most bytes of memory that this process has held."""
    try:  # what getrusage tells includes the parent before the process became its own
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
