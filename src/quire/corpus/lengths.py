"""The lengths of a corpus's documents: tokenised once, kept, and planned as often as one likes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.corpus.encoding import make_encoder
from quire.corpus.inputs import manifest_entry, read_span
from quire.corpus.job import Progress, too_many_bad
from quire.corpus.options import CorpusOptions
from quire.corpus.partitions import make_partitions
from quire.corpus.preparation import prepare
from quire.dataset.supervision import TrainedRuns
from quire.documents import Documents
from quire.files import leftovers_swept, whole_file
from quire.formats.files import InputFile
from quire.formats.format import BadRecord
from quire.ledger import Ledger, Tally
from quire.plan import PlanOptions
from quire.plan.planner import Supervised
from quire.seals import FORMAT_VERSION
from quire.text import TokenizerLike
from quire.text.fingerprint import tokenizer_fingerprint

_NOT_DECISIVE = (
    *("max_length", "strategy", "overlong", "stride", "min_length", "min_fragment"),
    *("max_documents_per_row", "shuffle", "seed", "keep_sources", "partition_size"),
)
"""Options that change rows, and no document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusLengths:
    """What the planner needs to know of a corpus."""

    lengths: npt.NDArray[np.int64]
    """Tokens of every document that can be packed, EOS included, BOS not."""
    has_prefix: bool
    """Every fragment opens with BOS."""
    ends_with_eos: bool
    ledger: Ledger
    """What was dropped before planning."""
    trained: TrainedRuns | None = None
    """Which tokens are trained, documents end to end; None where nothing has labels."""
    was_cached: bool = False

    @property
    def num_bad(self) -> int:
        """Bad records that were left out."""
        return self.ledger.documents.dropped.get("bad_record", 0)

    def supervised(self) -> Supervised | None:
        """A judge of fragments, as `quire pack` has one where documents have labels."""
        return None if self.trained is None else self.trained.judge(self.lengths)

    def terms(self, options: PlanOptions) -> PlanOptions:
        """The options as `quire pack` would complete them for these documents."""
        nothing = np.zeros(0, np.int64)
        shape = Documents(
            columns={},
            offsets=nothing,
            lengths=nothing,
            numbers=nothing,
            prefix_at=0 if self.has_prefix else None,
            ends_with_eos=self.ends_with_eos,
        )
        return shape.terms(options)


def corpus_lengths(
    inputs: Sequence[str | os.PathLike[str]],
    tokenizer: TokenizerLike | None,
    options: CorpusOptions,
    *,
    cache_dir: Path | None = None,
    max_bad_records: int = 0,
    on_start: Callable[[int], None] = lambda num_bytes: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> CorpusLengths:
    """The lengths of all documents; from ``cache_dir``, where they were counted there before.

    What was counted with more bad records than are allowed now is counted again, so that the error
    names the record.
    """
    prepared = prepare(inputs, tokenizer, options)
    files, options, loaded = prepared.files, prepared.options, prepared.tokenizer
    file = cache_dir and cache_dir / f"{_key(files, options, tokenizer, loaded)}.arrow"
    kept = _read(file) if file else None
    if kept is not None and kept.num_bad <= max_bad_records:
        return kept
    columns = prepared.columns()
    partitions = make_partitions(files, options, columns)
    on_start(sum(partition.size for partition in partitions))
    count = _Count(files, options, loaded, columns, max_bad_records)
    for partition in partitions:
        for span in partition.spans:
            for batch in read_span(files[span.file], span, options, columns):
                on_progress(count.add(batch))
    found = count.lengths()
    if file:
        _write(file, found)
    return found


class _Count:
    """Documents counted batch by batch, so that no token outlives its batch."""

    def __init__(
        self,
        files: tuple[InputFile, ...],
        options: CorpusOptions,
        tokenizer: TokenizerLike | None,
        columns: dict[str, str],
        budget: int,
    ) -> None:
        self._files, self._options = files, options
        self._tokenizer, self._columns = tokenizer, columns
        self._budget = budget
        self._bad: list[BadRecord] = []
        self._parts: list[npt.NDArray[np.int64]] = []
        self._trained: list[TrainedRuns] = []
        self._ledger = Ledger()
        self._last = self._documents([])

    def add(self, batch: Any) -> Progress:  # noqa: ANN401 - a reader's batch
        documents = self._documents([batch])
        if len(self._bad) > self._budget:
            raise too_many_bad(self._files, self._bad[self._budget], self._budget)
        self._parts.append(documents.lengths.astype(np.int64))
        self._trained.append(TrainedRuns.of(documents))
        self._ledger += documents.ledger
        self._last = documents
        return Progress(
            num_bytes=batch.num_bytes,
            documents=len(batch.records),
            tokens=int(documents.lengths.sum()),
            bad=len(batch.bad),
        )

    def _documents(self, batches: list[Any]) -> Documents:
        encoder = make_encoder(self._options, self._tokenizer, self._columns)
        for batch in batches:
            encoder.add(batch, self._files[batch.file])
        self._bad += encoder.bad
        return encoder.documents()

    def lengths(self) -> CorpusLengths:
        missing = len(self._bad) - self._ledger.documents.dropped.get("bad_record", 0)
        bad = Tally(input=missing, dropped={"bad_record": missing})
        return CorpusLengths(
            lengths=np.concatenate([np.zeros(0, np.int64), *self._parts]),
            has_prefix=self._last.prefix_at is not None,
            ends_with_eos=self._last.ends_with_eos,
            ledger=self._ledger + Ledger(documents=bad),
            trained=TrainedRuns.joined(self._trained) if "labels" in self._last.columns else None,
        )


def _key(
    files: tuple[InputFile, ...],
    options: CorpusOptions,
    named: TokenizerLike | None,
    loaded: TokenizerLike | None,
) -> str:
    decisive = {k: v for k, v in options.to_dict().items() if k not in _NOT_DECISIVE}
    said = {
        "version": FORMAT_VERSION,
        "inputs": [manifest_entry(file) for file in files],
        "options": decisive,
        "tokenizer": tokenizer_fingerprint(named, loaded),
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _write(file: Path, found: CorpusLengths) -> None:
    about = {
        "has_prefix": found.has_prefix,
        "ends_with_eos": found.ends_with_eos,
        "ledger": found.ledger.to_dict(),
    }
    runs = None if found.trained is None else found.trained.edges
    columns = {"lengths": [found.lengths], "trained": [runs]}
    schema = pa.schema({name: pa.large_list(pa.int64()) for name in columns})
    table = pa.table(columns, schema=schema.with_metadata({"quire": json.dumps(about)}))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with leftovers_swept(file), whole_file(file) as temporary:
            _write_table(temporary, table)
    except OSError:
        return  # a cache that cannot be written costs time alone


def _write_table(path: Path, table: pa.Table) -> None:
    with path.open("wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _read(file: Path) -> CorpusLengths | None:
    """What was kept; None where nothing is, or where it cannot be read."""
    try:
        with pa.OSFile(str(file), "rb") as source, pa.ipc.open_file(source) as reader:
            table = reader.read_all()
        about = json.loads(table.schema.metadata[b"quire"])
        lengths, runs = (table.column(name)[0].values for name in ("lengths", "trained"))
        return CorpusLengths(
            lengths=lengths.to_numpy(),
            trained=None if runs is None else TrainedRuns(edges=runs.to_numpy()),
            has_prefix=bool(about["has_prefix"]),
            ends_with_eos=bool(about["ends_with_eos"]),
            ledger=Ledger.from_dict(about["ledger"]),
            was_cached=True,
        )
    except (OSError, pa.ArrowException, ValueError, LookupError, TypeError, AttributeError):
        return None
