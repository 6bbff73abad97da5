"""The options of a stream, declared once; they travel whole through the pipeline."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from quire.errors import InvalidOption
from quire.options import (
    Count,
    EncodeOptions,
    Integer,
    Number,
    Options,
    Positive,
    RecordOptions,
    RowOptions,
)
from quire.options.names import setting
from quire.options.nested import flat_options
from quire.text import Tokenizer
from quire.text.tokenizer import adds_bos

Backend = Literal["hf", "files", "local_text"]
TokenId = Annotated[int, Integer(0, (1 << 31) - 1)]
LONGEST_ROW = (1 << 31) - 2
RowLength = Annotated[int, Integer(1, LONGEST_ROW)]
Weight = Annotated[float, Number(above=0)]
Seconds = Annotated[float, Number(least=0)]
_PACKED_ONLY = {
    **dict.fromkeys(("vision", "vision_messages"), ""),
    "preference": " and would separate the two documents of a pair where a row is full",
}
"""Kinds of records that streams do not read."""
SPECIAL_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")


@dataclass(frozen=True, kw_only=True)
class SourceFields(Options):
    """Where documents come from: files, a text, or a dataset of the Hugging Face hub."""

    backend: Backend | None = None
    """What kind of source is read. None: as the other options suggest, otherwise hf."""
    files: tuple[str, ...] = ()
    """Paths, globs or folders of jsonl, parquet and text files, also compressed (``.gz``,
    ``.zst``); PATH:COLUMN names the column of the text. Or a tokenized corpus, such as Megatron's
    ``.idx`` or a folder of MDS, which is read in place."""
    format: str | None = None
    """The format of a tokenized corpus (megatron, datatrove, olmo, mds, litdata, llmc, nemo, arrow,
    parquet) and what its files do not say: ``megatron:unit=documents``. None: recognized."""
    pattern: str | None = None
    """Which files of a folder are read, such as '*.py' or 'docs/**/*.rst'; any suffix without a
    format is read as text. None: those of known formats, without .json, .md and .py."""
    local_text: str | None = None
    """A single document, for experiments."""
    hf_dataset: str | None = None
    """The name of a dataset on the hub, or of a loader such as ``json``."""
    hf_name: str | None = None
    """The configuration of the dataset."""
    hf_split: str = "train"
    """The split of the dataset."""
    hf_data_files: tuple[str, ...] = ()
    """The files that a loader such as ``json`` or ``parquet`` reads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend is None:
            object.__setattr__(self, "backend", self._implied_backend())

    @property
    def names_a_source(self) -> bool:
        """Whether any option says what to read."""
        return bool(self.files) or self.local_text is not None or self.hf_dataset is not None

    @property
    def title(self) -> str:
        """What statistics call the source."""
        if self.files:
            return ", ".join(self.files)
        if self.local_text is not None:
            return "local_text"
        parts = (self.hf_dataset, self.hf_name, *self.hf_data_files)
        return " ".join(part for part in parts if part) or "source"

    def _implied_backend(self) -> Backend:
        if self.hf_dataset is not None or (not self.files and self.local_text is None):
            return "hf"
        if self.files and self.local_text is not None:
            raise InvalidOption(
                "files and local_text are both given, so the choice is ambiguous; set backend to "
                "files or local_text, or leave one out"
            )
        return "files" if self.files else "local_text"


@dataclass(frozen=True, kw_only=True)
class StreamSource(SourceFields, RecordOptions):
    """A source, and what a document of it is."""

    names: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """What error messages call an option, if not by its name here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.record_kind in _PACKED_ONLY:
            raise InvalidOption(
                f"{setting('record_kind', self.record_kind)} is not for streams, which read text, "
                f"answers and tokens{_PACKED_ONLY[self.record_kind]}; pack such records with "
                "pack_dataset or quire pack"
            )

    def name(self, option: str) -> str:
        """The name of an option in error messages."""
        return self.names.get(option, option)


@dataclass(frozen=True, kw_only=True)
class MixtureSource(StreamSource):
    """One source of a mixture."""

    weight: Weight = 1.0
    """Share of the tokens, relative to the other weights."""


@dataclass(frozen=True, kw_only=True)
class PipelineFields:
    """Order, retries, labels and workers: names that keywords and chomp's config share."""

    shuffle: bool = True
    """Shuffle documents."""
    shuffle_buffer_size: Positive = 10000
    """Documents that are shuffled together."""
    seed: Count = 0
    """Seeds the order of documents."""
    repeat: bool = True
    """Start another epoch when the source ends."""
    max_retries: Count = 3
    """Retries of a source that fails."""
    retry_delay_sec: Seconds = 1.0
    """Seconds before the first retry; each further one waits twice as long."""
    state_update_interval: Positive = 2000
    """Documents between updates of the source's cursor; affects only cost, never exactness."""
    max_bad_records: Count = 0
    """Records without a readable text that are skipped and counted before one is an error."""
    mask_boundary_loss: bool = True
    """Exclude the first token of every fragment from the targets."""
    train_on_eos: bool = True
    """Include EOS in the targets."""
    emit_position_ids: bool = False
    """Add ``position_ids`` to batches."""
    last_batch: Literal["pad", "drop"] = "pad"
    """What happens to the last, incomplete batch of a stream that does not repeat."""
    num_workers: Count = 0
    """Processes that tokenize."""
    num_streams: Positive = 1
    """Independent streams over disjoint documents; with several, each rank reads only its own."""


@dataclass(frozen=True, kw_only=True)
class StreamOptions(PipelineFields, RowOptions, EncodeOptions, StreamSource):
    """How documents become batches: the keywords of `open_stream`.

    ``strategy`` has other choices than in `PackOptions`; documents are shuffled, not rows, so
    ``shuffle`` and ``seed`` are declared here, too.
    """

    batch_size: Positive
    """Rows in a microbatch, over all ranks."""
    grad_accum: Positive = 1
    """Microbatches in a batch."""
    sources: tuple[MixtureSource, ...] = ()
    """A mixture, instead of a single source."""
    strategy: Literal["wrapped", "first_fit", "online"] = "wrapped"
    """The packing strategy."""
    buffer_size: Positive = 128
    """Documents buffered by ``first_fit`` and ``online``."""
    prefetch: Count = 0
    """Batches made ahead in a thread."""
    vocab_size: Positive | None = None
    """The size of the vocabulary. None: the tokenizer's."""
    pad_token_id: TokenId | None = None
    """The id of PAD. None: the tokenizer's."""
    bos_token_id: TokenId | None = None
    """The id of BOS. None: the tokenizer's."""
    eos_token_id: TokenId | None = None
    """The id of EOS. None: the tokenizer's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length > LONGEST_ROW:
            raise InvalidOption(
                f"{self.name('max_length')} is {self.max_length} but must be at most {LONGEST_ROW}"
            )
        if self.batch_size % self.num_streams:
            raise InvalidOption(
                f"{self.name('num_streams')} is {self.num_streams} but must divide "
                f"{self.name('batch_size')}, which is {self.batch_size}"
            )
        if self.sources and self.names_a_source:
            raise InvalidOption(
                f"{self.name('sources')} is a mixture, but there is another source besides it; put "
                f"all sources into {self.name('sources')}, and leave {self.name('files')}, "
                "local_text and hf_dataset unset"
            )

    @cached_property
    def trains_answers(self) -> bool:
        """Whether any source may have records of which only a part is trained."""
        named = self.sources or (self,)
        return any(source.has_answers or source.record_kind == "tokens" for source in named)

    @property
    def window_size(self) -> int:
        """Tokens in a window: one more than in a row, as labels are shifted."""
        return self.max_length + 1

    @property
    def bos(self) -> int | None:
        """The token that starts every document, if any."""
        return self.bos_token_id if self.add_bos else None

    @property
    def eos(self) -> int | None:
        """The token that ends every document, if any."""
        return self.eos_token_id if self.add_eos else None

    def with_tokenizer(self, tokenizer: Tokenizer, **values: Any) -> Self:  # noqa: ANN401
        """The options with everything that was left to the tokenizer, and with other values."""
        add_bos = adds_bos(tokenizer) if self.add_bos is None else self.add_bos
        given = {name: getattr(self, name) for name in ("vocab_size", *SPECIAL_IDS)}
        ids = {n: getattr(tokenizer, n) if value is None else value for n, value in given.items()}
        if ids["pad_token_id"] is None:  # padding is known from lengths, so any id will do
            ids["pad_token_id"] = ids["eos_token_id"] or 0
        return replace(self, **{"add_bos": add_bos, **ids, **values}).checked_specials()

    def checked_specials(self) -> Self:
        """These options, if every special token that they ask for has an id in the vocabulary."""
        for special in ("bos", "eos"):
            add, token = self.name(f"add_{special}"), self.name(f"{special}_token_id")
            if getattr(self, f"add_{special}") and getattr(self, f"{special}_token_id") is None:
                raise InvalidOption(
                    f"{add} is true but the tokenizer has no {special.upper()}; set {token}, or "
                    f"{add} to false"
                )
        if not self.train_on_eos and self.eos_token_id is None:
            token = self.name("eos_token_id")
            raise InvalidOption(
                f"{self.name('train_on_eos')} is False but {token} is not set; set it to the token "
                "to exclude"
            )
        for name in SPECIAL_IDS:
            value, size = getattr(self, name), self.vocab_size
            if value is not None and size is not None and value >= size:
                raise InvalidOption(
                    f"{self.name(name)} is {value} but the vocabulary has {size} ids"
                )
        return self

    def decisive(self) -> dict[str, Any]:
        """The options that decide the content of batches, by name, as they return from JSON."""
        plain: dict[str, Any] = json.loads(json.dumps(flat_options(self)))
        return {
            name: value
            for name, value in plain.items()
            if not INDECISIVE.fullmatch(name) and not _is_implied(name, value)
        }


INDECISIVE = re.compile(
    r"(sources\[\d+\]\.)?names|prefetch|num_workers|max_retries|retry_delay_sec"
    r"|state_update_interval|max_bad_records|tokenizer_engine|(sources\[\d+\]\.)?pattern"
)
"""Options that change time, cost or tolerance, but no batch."""
IN_EVERY_STATE = frozenset(
    (
        *("backend", "files", "local_text", "hf_dataset", "hf_name", "hf_split", "hf_data_files"),
        *("text_column", "sources", "weight", "add_bos", "add_eos", "drop_longer_than"),
        *("truncate_to", "max_length", "max_documents_per_row", "strategy", "buffer_size"),
        *("shuffle", "shuffle_buffer_size", "seed", "repeat", "mask_boundary_loss", "train_on_eos"),
        *("emit_position_ids", "last_batch", "num_streams", "batch_size", "grad_accum"),
        *("vocab_size", *SPECIAL_IDS),
    )
)
"""Options that all states of this version record. Any other one was added later and is recorded
only if it is set, so that the state of a stream without it stays the same."""


def _is_implied(name: str, value: object) -> bool:
    """Whether an option is not recorded because states without it mean this value."""
    own = name.rpartition(".")[2]
    if own == "record_kind" and value is None:
        return True
    return own not in IN_EVERY_STATE and value == default_of(name)


def default_of(name: str) -> object:
    """The value of a decisive option that a state lacks: its default, MISSING if it has none.

    >>> default_of("truncate_at"), default_of("sources[0].hf_split")
    (None, 'train')
    """
    in_mixture = re.fullmatch(r"sources\[\d+\]\.(\w+)", name)
    kind, own = (MixtureSource, in_mixture[1]) if in_mixture else (StreamOptions, name)
    if own == "record_kind":
        return "text"
    option = kind.__dataclass_fields__.get(own)
    default = MISSING if option is None else option.default
    return list(default) if isinstance(default, tuple) else default
