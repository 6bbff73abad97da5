"""Read, encode, plan, gather and commit one partition: the same function under every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from quire.corpus.commits import Commit, write_commit
from quire.corpus.contents import (
    Contents,
    packed_rows,
    require_none_overlong,
    whole_documents,
)
from quire.corpus.encoding import Encoder, make_encoder
from quire.corpus.inputs import read_span
from quire.corpus.options import CorpusOptions
from quire.corpus.output import DATA, write_errors
from quire.corpus.partitions import Partition
from quire.corpus.seeds import shard_seed
from quire.corpus.shards import shard_name, write_shard
from quire.errors import InvalidDocument
from quire.formats.files import InputFile
from quire.formats.format import BadRecord, Batch
from quire.ledger import Ledger, Tally
from quire.plan import register_strategy
from quire.plan.strategies import RowNumbers
from quire.storage import AnyPath
from quire.text import TokenizerLike


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """What was done since the last report."""

    num_bytes: int = 0
    documents: int = 0
    tokens: int = 0
    bad: int = 0
    commit: Commit | None = None


Report = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class PartitionJob:
    """All that a worker needs to know; called with a partition, it leaves committed shards."""

    out: AnyPath
    work: AnyPath
    """Where commits are written."""
    files: tuple[InputFile, ...]
    options: CorpusOptions
    tokenizer: TokenizerLike | None
    columns: dict[str, str]
    run: str = ""
    """Checksum of all that decides the bytes: what was packed under other terms is none of ours."""
    committed: frozenset[tuple[int, int]] = frozenset()
    """(partition, piece) of shards that stand already."""
    max_bad_records: int = 0
    strategy: RowNumbers | None = None
    """The strategy of the options, where it was registered: other processes do not know it."""

    def __call__(self, partition: Partition, report: Report) -> None:
        """Commit every shard of the partition that is not committed yet."""
        if self.strategy is not None:
            register_strategy(self.options.strategy, self.strategy)
        # Some slack, so that a line over the edge of a partition makes no shard of its own.
        limit = self.options.partition_bytes + self.options.partition_bytes // 4
        shard = self._shard(partition, 0)
        for batch in self._batches(partition):
            if shard.num_bytes and shard.num_bytes + batch.num_bytes > limit:
                shard.commit(report, last=False)
                shard = self._shard(partition, shard.piece + 1)
            shard.add(batch, report)
        shard.commit(report, last=True)

    def require_possible(self) -> None:
        """Raise for options under which no document can be packed, before any is read."""
        empty = make_encoder(self.options, self.tokenizer, self.columns).documents()
        packed_rows(empty, self.options, self.options.seed, self.shard_columns, self.files)

    @property
    def shard_columns(self) -> dict[str, str]:
        """What stands beside the tokens of every row, by name and type."""
        return {"labels": "int32"} if self.options.messages_column else self.columns

    def _batches(self, partition: Partition) -> Iterator[Batch]:
        for span in partition.spans:
            yield from read_span(self.files[span.file], span, self.options, self.columns)

    def _shard(self, partition: Partition, piece: int) -> _Shard:
        return _Shard(self, partition.number, piece)


class _Shard:
    """The part of a partition that is packed into one shard."""

    def __init__(self, job: PartitionJob, partition: int, piece: int) -> None:
        self._job, self._partition, self.piece = job, partition, piece
        self.num_bytes = 0
        stands = (partition, piece) in job.committed
        self._encoder: Encoder | None = (
            None if stands else make_encoder(job.options, job.tokenizer, job.columns)
        )

    def add(self, batch: Batch, report: Report) -> None:
        self.num_bytes += batch.num_bytes
        if self._encoder is None:
            return
        before = len(self._encoder.bad)
        tokens = self._encoder.add(batch, self._job.files[batch.file])
        new = self._encoder.bad[before:]
        require_budget(self._job, self._encoder.bad)
        report(
            Progress(
                num_bytes=batch.num_bytes,
                documents=len(batch.records),
                tokens=tokens,
                bad=len(new),
            )
        )

    def commit(self, report: Report, *, last: bool) -> None:
        if self._encoder is None:
            return
        job, contents = self._job, self._contents(self._encoder)
        path = job.out / DATA / shard_name(self._partition, self.piece)
        with write_errors(job.out):
            sha256, size = write_shard(path, contents.records, contents.record_length)
        commit = Commit(
            run=job.run,
            partition=self._partition,
            piece=self.piece,
            last=last,
            sha256=sha256,
            size=size,
            rows=contents.records.num_rows,
            tokens=contents.tokens,
            ledger=_total(contents.ledger, self._encoder.bad),
            bad=tuple(self._encoder.bad),
        )
        with write_errors(job.out):
            write_commit(job.work, commit)
        report(Progress(commit=commit))

    def _contents(self, encoder: Encoder) -> Contents:
        options = self._job.options
        columns = self._job.shard_columns
        if options.index_only:
            documents = encoder.documents()
            require_none_overlong(documents, options, self._job.files)
            return whole_documents(documents, columns)
        seed = shard_seed(options.seed, self._partition, self.piece)
        return packed_rows(encoder.documents(), options, seed, columns, self._job.files)


def _total(ledger: Ledger, bad: list[BadRecord]) -> Ledger:
    """With the bad records, of which the encoder of tokens has counted those that it saw."""
    missing = len(bad) - ledger.documents.dropped.get("bad_record", 0)
    counted = Tally(input=missing, dropped={"bad_record": missing})
    return (ledger + Ledger(documents=counted)).check()


def require_budget(job: PartitionJob, bad: list[BadRecord]) -> None:
    """Raise if there are more bad records than are allowed."""
    if len(bad) > job.max_bad_records:
        raise too_many_bad(job.files, bad[job.max_bad_records], job.max_bad_records)


def too_many_bad(files: tuple[InputFile, ...], record: BadRecord, budget: int) -> InvalidDocument:
    """The error that names the first bad record over the budget."""
    place = "" if record.offset is None else f" (byte {record.offset})"
    more = "" if budget == 0 else f", after {budget} bad records were left out"
    return InvalidDocument(
        f"{files[record.file].path}: record {record.record}{place} {record.reason}{more}; mend the "
        "data, or let such records be left out and listed with max_bad_records"
    )
