"""Read, encode, plan, gather and commit one partition: the same function on every engine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from quire.corpus.commits import Commit, write_commit
from quire.corpus.corpus import Corpus
from quire.corpus.encoding import Encoder, require_fitting
from quire.corpus.output import DATA, write_errors
from quire.corpus.partitions import Partition
from quire.corpus.shards import DOCUMENT_ID, LENGTH, shard_name, write_shard
from quire.corpus.vision_rows import embed_images, sources_of, tokens_per_row, vision_rows
from quire.dataset.pairs import planned_pairs
from quire.dataset.rows import trained_tokens
from quire.dataset.supervision import supervised_by_labels
from quire.documents import Documents
from quire.formats.bad_records import over_budget
from quire.formats.files import InputFile
from quire.formats.format import BadRecord, Batch
from quire.gather import gather
from quire.ledger import Ledger, Tally, TokenTally
from quire.plan import PlanOptions, make_plan, plan_documents, register_strategy
from quire.plan.strategies import RowNumbers
from quire.storage import AnyPath


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
    """Everything that a worker needs; calling it with a partition commits that one's shards."""

    corpus: Corpus
    out: AnyPath
    work: AnyPath
    """The folder of commits."""
    plan_options: PlanOptions
    """Those of `Corpus.plan_options`."""
    run: str = ""
    """Checksum of the header, which determines the bytes; other runs' commits are ignored."""
    committed: frozenset[tuple[int, int]] = frozenset()
    """(partition, piece) of shards that are committed already."""
    max_bad_records: int = 0
    strategy: RowNumbers | None = None
    """The function of a registered strategy, which other processes do not know."""

    def __call__(self, partition: Partition, report: Report) -> None:
        """Commit every shard of the partition that is not committed yet."""
        options = self.corpus.options
        if self.strategy is not None:
            register_strategy(options.strategy, self.strategy)
        # Some slack, so that a line across the end of a partition needs no shard of its own.
        limit = options.partition_bytes + options.partition_bytes // 4
        shard = _Shard(self, partition.number, 0)
        for batch in self.corpus.batches(partition.spans):
            if shard.num_bytes and shard.num_bytes + batch.num_bytes > limit:
                shard.commit(report, last=False)
                shard = _Shard(self, partition.number, shard.piece + 1)
            shard.add(batch, report)
        shard.commit(report, last=True)


class _Shard:
    """The part of a partition that is packed into one shard."""

    def __init__(self, job: PartitionJob, partition: int, piece: int) -> None:
        self._job, self._partition, self.piece = job, partition, piece
        self.num_bytes = 0
        is_committed = (partition, piece) in job.committed
        self._encoder: Encoder | None = None if is_committed else job.corpus.encoder()

    def add(self, batch: Batch, report: Report) -> None:
        self.num_bytes += batch.num_bytes
        if self._encoder is not None:
            job = self._job
            report(encode_batch(job.corpus, self._encoder, batch, job.max_bad_records))

    def commit(self, report: Report, *, last: bool) -> None:
        if self._encoder is None:
            return
        job, contents = self._job, self._contents(self._encoder.documents())
        path = job.out / DATA / shard_name(self._partition, self.piece)
        with write_errors(job.out):
            sha256, size = write_shard(
                path, contents.records, contents.record_length, contents.complete
            )
        commit = Commit(
            run=job.run,
            partition=self._partition,
            piece=self.piece,
            last=last,
            sha256=sha256,
            size=size,
            rows=contents.records.num_rows,
            tokens=contents.tokens,
            content=contents.content,
            ledger=with_bad_records(contents.ledger, len(self._encoder.bad)).check(),
            bad=tuple(self._encoder.bad),
        )
        with write_errors(job.out):
            write_commit(job.work, commit)
        report(Progress(commit=commit))

    def _contents(self, documents: Documents) -> Contents:
        corpus, options = self._job.corpus, self._job.plan_options
        if corpus.options.has_images:
            seed = shard_seed(corpus.options.seed, self._partition, self.piece)
            return packed_samples(corpus, documents, replace(options, seed=seed))
        if corpus.options.overlong == "error":
            names = [str(file.path) for file in corpus.files]
            require_fitting(documents.lengths, options.max_fragment, documents.numbers, names)
        if corpus.options.index_only:
            return whole_documents(corpus, documents)
        seed = shard_seed(corpus.options.seed, self._partition, self.piece)
        return packed_rows(corpus, documents, replace(options, seed=seed))


def encode_batch(corpus: Corpus, encoder: Encoder, batch: Batch, max_bad_records: int) -> Progress:
    """Add a batch to an encoder that may skip ``max_bad_records``; returns what was done."""
    before = len(encoder.bad)
    tokens = encoder.add(batch, corpus.files[batch.file])
    require_budget(corpus.files, encoder.bad, max_bad_records)
    return Progress(
        num_bytes=batch.num_bytes,
        documents=len(batch.records),
        tokens=tokens,
        bad=len(encoder.bad) - before,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """The records of one shard, and what became of its documents."""

    records: pa.Table
    tokens: int
    content: int
    """Tokens without BOS; EOS is content."""
    ledger: Ledger
    record_length: int
    """The approximate number of tokens in a record."""
    complete: Callable[[pa.Table], pa.Table] | None = None
    """Adds to some of the records what is too large to be held for all."""


def packed_rows(corpus: Corpus, documents: Documents, options: PlanOptions) -> Contents:
    """The rows into which these documents are packed."""
    if documents.is_paired:
        documents, plan = planned_pairs(documents, options)
    else:
        plan = plan_documents(documents.lengths, options, supervised_by_labels(documents))
    rows = gather(documents, plan, keep_sources=corpus.options.keep_sources)
    trained = TokenTally(trained=trained_tokens(rows))
    ledger = documents.ledger + plan.ledger + Ledger(tokens=trained)
    del documents  # its tokens are in the rows now
    return Contents(
        records=rows.cast(corpus.schema()),
        tokens=int(plan.row_lengths.sum(dtype=np.int64)),
        content=plan.content,
        ledger=ledger,
        record_length=options.max_length,
    )


def packed_samples(corpus: Corpus, documents: Documents, options: PlanOptions) -> Contents:
    """The rows into which samples with images are packed."""
    files, embeds = [str(file.path) for file in corpus.files], corpus.options.embed_images
    rows, plan, kept = vision_rows(documents, options, corpus.options, files)
    trained = TokenTally(trained=trained_tokens(rows))
    return Contents(
        records=rows.cast(corpus.schema()),
        tokens=int(plan.row_lengths.sum(dtype=np.int64)),
        content=plan.content,
        ledger=kept.ledger + plan.ledger + Ledger(tokens=trained),
        record_length=tokens_per_row(kept, plan.num_rows, options.max_length, embeds),
        complete=partial(embed_images, sources=sources_of(kept)) if embeds else None,
    )


def whole_documents(corpus: Corpus, documents: Documents) -> Contents:
    """One record per document: its id, length and tokens, with EOS but without BOS.

    The length has its own column, so that a plan can be made without reading tokens.
    """
    lengths, ids, before = documents.lengths, documents.numbers, documents.ledger
    num_eos = documents.ends_with_eos * len(lengths)
    longest = int(lengths.max(initial=1))
    each = make_plan(lengths, longest, "greedy", max_documents_per_row=1)
    table = gather(replace(documents, prefix_at=None), each)
    del documents
    schema = corpus.schema()
    own = {DOCUMENT_ID: pa.array(ids), LENGTH: pa.array(lengths)}
    every = [own[name] if name in own else table[name] for name in schema.names]
    tokens = int(lengths.sum(dtype=np.int64))
    kept = Ledger(
        documents=Tally(input=len(lengths), emitted=len(lengths)),
        tokens=TokenTally(input=tokens - num_eos, emitted=tokens - num_eos, special=num_eos),
    )
    return Contents(
        records=pa.table(every, names=schema.names).cast(schema),
        tokens=tokens,
        content=tokens,
        ledger=before + kept,
        record_length=max(1, tokens // max(1, len(lengths))),
    )


def shard_seed(seed: int, partition: int, piece: int) -> int:
    """The seed of one shard, so that no two are shuffled in the same way."""
    digest = hashlib.sha256(f"{seed} {partition} {piece}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def with_bad_records(ledger: Ledger, num_bad: int) -> Ledger:
    """The ledger with all bad records, some of which an encoder may have counted already."""
    missing = num_bad - ledger.documents.dropped.get("bad_record", 0)
    return ledger + Ledger(documents=Tally(input=missing, dropped={"bad_record": missing}))


def require_budget(files: Sequence[InputFile], bad: Sequence[BadRecord], budget: int) -> None:
    """Raise if there are more bad records than are allowed; names the first one too many."""
    if len(bad) <= budget:
        return
    record = bad[budget]
    offset = "" if record.offset is None else f" (byte {record.offset})"
    where = f"{files[record.file].path}: record {record.record}{offset}"
    raise over_budget(f"{where} {record.reason}", budget, fits=record.fits)
