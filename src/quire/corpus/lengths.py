"""The lengths of a corpus's documents for `quire plan`: tokenized once, cached, planned often."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.corpus.corpus import Corpus
from quire.corpus.in_place import reads_in_place
from quire.corpus.inputs import manifest_entry
from quire.corpus.job import Progress, encode_batch, with_bad_records
from quire.corpus.options import ROW_OPTIONS, CorpusOptions
from quire.corpus.partitions import make_partitions
from quire.corpus.vision_plan import SampleSizes
from quire.dataset.pairs import whole_pairs
from quire.dataset.supervision import TrainedRuns
from quire.documents import Documents
from quire.files import leftovers_swept, whole_file
from quire.formats.corpora import open_corpus
from quire.formats.format import Batch
from quire.ledger import Ledger
from quire.options import PackOptions
from quire.plan import PlanOptions, plan_options
from quire.plan.lengths import IntArray
from quire.plan.planner import Supervised
from quire.seals import FORMAT_VERSION
from quire.text import TokenizerLike
from quire.text.fingerprint import tokenizer_fingerprint

_NOT_ABOUT_DOCUMENTS = (
    *(*ROW_OPTIONS, "keep_sources", "partition_size"),
    *("max_images", "max_patches", "embed_images"),
)
"""Options that change rows, but no documents."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusLengths:
    """What the planner needs to know about a corpus."""

    lengths: npt.NDArray[np.int64]
    """Tokens of every document that can be packed, with EOS and without BOS."""
    has_prefix: bool
    """Whether every fragment starts with BOS."""
    ends_with_eos: bool
    ledger: Ledger
    """What was dropped before planning."""
    trained: TrainedRuns | None = None
    """Which tokens are trained, over all documents end to end; None without labels."""
    samples: SampleSizes | None = None
    """What samples with images are limited in; None for other documents."""
    record_kind: Any = None
    """What the records were recognized as, if they have images."""
    was_cached: bool = False

    @property
    def num_bad(self) -> int:
        """Bad records that were skipped."""
        return self.ledger.documents.dropped.get("bad_record", 0)

    def supervised(self) -> Supervised | None:
        """Tells which fragments have trained tokens; None without labels."""
        return None if self.trained is None else self.trained.judge(self.lengths)

    def plan_options(self, options: PackOptions) -> PlanOptions:
        """The options as `quire pack` completes them for these documents."""
        return plan_options(options, int(self.has_prefix), self.ends_with_eos)

    def require_possible(self, options: CorpusOptions) -> None:
        """Raise for options with which `quire pack` refuses these records."""
        if self.samples is not None:
            replace(options, record_kind=self.record_kind).require_possible()


def corpus_lengths(
    inputs: Sequence[str | os.PathLike[str]],
    tokenizer: TokenizerLike | None,
    options: CorpusOptions,
    *,
    cache_dir: Path | None = None,
    format: str | None = None,  # noqa: A002
    max_bad_records: int = 0,
    image_root: Path | None = None,
    on_start: Callable[[int], None] = lambda num_bytes: None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> CorpusLengths:
    """The lengths of all documents, from ``cache_dir`` if they were counted before.

    Those of a tokenized corpus of another system are read from its index.

    A cached count with more bad records than are allowed now is repeated, so that the error can
    name the record.
    """
    if reads_in_place(inputs, replace(options, index_only=True), format):
        options.require_possible()  # its records are tokens, without images
        found_in_place = open_corpus(inputs, format)
        return CorpusLengths(
            lengths=found_in_place.lengths().astype(np.int64),
            has_prefix=False,
            ends_with_eos=False,
            ledger=found_in_place.ledger,
        )
    corpus = Corpus.open(inputs, tokenizer, options, image_root=image_root)
    file = cache_dir and cache_dir / f"{_key(corpus, tokenizer)}.arrow"
    cached = _read(file, has_images=corpus.options.has_images) if file else None
    if cached is not None and cached.num_bad <= max_bad_records:
        return cached
    partitions = make_partitions(corpus)
    on_start(sum(partition.size for partition in partitions))
    count = _Count(corpus, max_bad_records)
    for partition in partitions:
        for batch in corpus.batches(partition.spans):
            on_progress(count.add(batch))
    found = count.lengths()
    if file:
        _write(file, found)
    return found


class _Count:
    """Counts documents batch by batch, so that no token outlives its batch."""

    def __init__(self, corpus: Corpus, max_bad_records: int) -> None:
        self._corpus, self._max_bad_records = corpus, max_bad_records
        self._encoder = corpus.encoder()
        self._parts: list[npt.NDArray[np.int64]] = []
        self._trained: list[TrainedRuns] = []
        self._samples: list[SampleSizes] = []
        self._ledger = Ledger()
        self._last: Documents = self._encoder.documents()

    def add(self, batch: Batch) -> Progress:
        progress = encode_batch(self._corpus, self._encoder, batch, self._max_bad_records)
        documents = self._last = self._encoder.documents()
        if documents.is_paired:
            documents = self._last = whole_pairs(documents)
        self._parts.append(_lengths(documents))
        self._trained.append(TrainedRuns.of(documents))
        if documents.media is not None:
            self._samples.append(SampleSizes.of(documents))
        self._ledger += documents.ledger
        return progress

    def lengths(self) -> CorpusLengths:
        has_images = self._corpus.options.has_images
        return CorpusLengths(
            lengths=np.concatenate([np.zeros(0, np.int64), *self._parts]),
            has_prefix=self._last.prefix_at is not None,
            ends_with_eos=self._last.ends_with_eos,
            ledger=with_bad_records(self._ledger, len(self._encoder.bad)),
            trained=self._runs(),
            samples=SampleSizes.joined(self._samples) if has_images else None,
            record_kind=self._corpus.options.record_kind if has_images else None,
        )

    def _runs(self) -> TrainedRuns | None:
        """What is trained; None for pairs, which are dropped or kept as a whole."""
        if "labels" not in self._last.columns or self._last.is_paired:
            return None
        return TrainedRuns.joined(self._trained)


def _lengths(documents: Documents) -> npt.NDArray[np.int64]:
    """The length of every document; of a pair, the space of both after the first BOS."""
    lengths = documents.lengths.astype(np.int64)
    return lengths.reshape(-1, 2).sum(axis=1) + documents.prefix if documents.is_paired else lengths


def _key(corpus: Corpus, named: TokenizerLike | None) -> str:
    options = corpus.options.to_dict().items()
    content = {
        "version": FORMAT_VERSION,
        "inputs": [manifest_entry(file) for file in corpus.files],
        "options": {name: value for name, value in options if name not in _NOT_ABOUT_DOCUMENTS},
        "tokenizer": tokenizer_fingerprint(named, corpus.tokenizer),
    }
    if corpus.image_root is not None:
        content["image_root"] = str(corpus.image_root.resolve())
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _write(file: Path, found: CorpusLengths) -> None:
    about: dict[str, object] = {
        "has_prefix": found.has_prefix,
        "ends_with_eos": found.ends_with_eos,
        "ledger": found.ledger.to_dict(),
    }
    runs = None if found.trained is None else found.trained.edges
    columns: dict[str, list[IntArray | None]] = {
        "lengths": [found.lengths],
        "trained": [runs],
    }
    if found.samples is not None:
        about["record_kind"] = found.record_kind
        columns |= {"images": [found.samples.images], "patches": [found.samples.patches]}
    schema = pa.schema({name: pa.large_list(pa.int64()) for name in columns})
    table = pa.table(columns, schema=schema.with_metadata({"quire": json.dumps(about)}))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with (
            leftovers_swept(file),
            whole_file(file) as temporary,
            temporary.open("wb") as sink,
            pa.ipc.new_file(sink, table.schema) as writer,
        ):
            writer.write_table(table)
    except OSError:
        return  # without the cache it only takes longer


def _read(file: Path, *, has_images: bool) -> CorpusLengths | None:
    """The cached lengths; None if there are none or they cannot be read."""
    try:
        with pa.OSFile(str(file), "rb") as source, pa.ipc.open_file(source) as reader:
            table = reader.read_all()
        about = json.loads(table.schema.metadata[b"quire"])
        columns = {name: table.column(name)[0].values for name in table.column_names}
        lengths, runs = columns["lengths"].to_numpy(), columns["trained"]
        samples = None
        if has_images:  # lengths of an earlier version lack the rest, and are counted again
            images, patches = (columns[name].to_numpy() for name in ("images", "patches"))
            samples = SampleSizes(lengths=lengths, images=images, patches=patches)
        return CorpusLengths(
            lengths=lengths,
            samples=samples,
            record_kind=about["record_kind"] if has_images else None,
            trained=None if runs is None else TrainedRuns(edges=runs.to_numpy()),
            has_prefix=bool(about["has_prefix"]),
            ends_with_eos=bool(about["ends_with_eos"]),
            ledger=Ledger.from_dict(about["ledger"]),
            was_cached=True,
        )
    except (OSError, pa.ArrowException, ValueError, LookupError, TypeError, AttributeError):
        return None
