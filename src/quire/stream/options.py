"""The options of a stream, declared once, with the dotted names that a config file uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from quire.errors import InvalidOption
from quire.options import Count, Integer, Number, Positive, Seed, validate

Backend = Literal["hf", "files", "local_text"]
PackingMode = Literal["sequential", "bin", "online"]
_LARGEST_ID = (1 << 31) - 1
TokenId = Annotated[int, Integer(0, _LARGEST_ID)]
"""Token ids are int32."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Where documents come from."""

    backend: Backend | None = None
    """None is ``files`` or ``local_text`` where that option is given alone, and else ``hf``."""
    files: tuple[str, ...] = ()
    """Paths or globs of jsonl, parquet and text (a document each), also ``.gz`` and ``.zst``."""
    local_text: str | None = None
    """One document, for a try (backend ``local_text``)."""
    hf_dataset: str | None = None
    """A dataset of the Hugging Face hub, or a loader such as ``json`` (backend ``hf``)."""
    hf_name: str | None = None
    hf_split: str = "train"
    hf_data_files: tuple[str, ...] = ()
    """What a loader such as ``json`` or ``parquet`` reads."""
    text_key: str = "text"

    def __post_init__(self) -> None:
        if self.backend is None:
            object.__setattr__(self, "backend", self._backend_of_what_is_given())
        validate(self)

    def _backend_of_what_is_given(self) -> Backend:
        if self.hf_dataset is not None or (not self.files and self.local_text is None):
            return "hf"
        if self.files and self.local_text is not None:
            raise InvalidOption(
                "files and local_text are both given, and no backend says which is meant; set "
                "backend to files or local_text, or leave one out"
            )
        return "files" if self.files else "local_text"


@dataclass(frozen=True, kw_only=True)
class WeightedSource(SourceOptions):
    """One source of a mixture."""

    weight: Annotated[float, Number(above=0)] = 1.0
    """Its share of the tokens, beside the other weights."""


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions:
    """How text becomes tokens."""

    kind: Literal["hf", "byte"] = "hf"
    hf_name_or_path: str | None = None
    add_bos: bool | None = False
    """None: if the tokenizer itself adds it."""
    add_eos: bool = True
    byte_offset: Annotated[int, Integer(0, _LARGEST_ID - 255)] = 3
    vocab_size_multiple: Positive = 128
    auto_set_special_tokens: bool = True
    """Whether ``model`` takes over the special ids of an hf tokenizer."""
    max_doc_tokens: Positive | None = None
    """Tokens of a document beyond these are cut off, before specials, and counted."""

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, kw_only=True)
class DataOptions(SourceOptions):
    """Documents, their order, and how they become windows."""

    sources: tuple[WeightedSource, ...] = ()
    """A mixture; instead of a source here."""
    shuffle: bool = True
    shuffle_buffer_size: Positive = 10000
    """Documents that are shuffled together: the shuffle window."""
    seed: Seed = 0
    repeat: bool = True
    max_retries: Count = 3
    retry_delay_sec: Annotated[float, Number(least=0)] = 1.0
    state_update_interval: Positive = 2000
    """Documents between refreshes of the source's cursor: cost only, never exactness."""
    max_bad_records: Count = 0
    """Records of a stream that may be left out and counted as no text can be read from them."""
    tokenizer: TokenizerOptions = field(default_factory=TokenizerOptions)
    packing_mode: PackingMode = "sequential"
    packing_buffer_docs: Positive = 128
    """Documents that wait to be packed; without effect in sequential mode."""
    packing_max_docs_per_bin: Positive | None = None
    """The most documents in a row; without effect in sequential mode."""
    mask_boundary_loss: bool = True
    train_on_eos: bool = True
    emit_position_ids: bool = False
    grain_prefetch: Count = 0
    """Batches that are made ahead in a thread."""
    num_workers: Count = 0
    """Processes that tokenise."""
    num_streams: Positive = 1
    """Independent packed streams over disjoint documents; more than one lets ranks read less."""
    last_batch: Literal["pad", "drop"] = "pad"


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The shape of a batch: ``[grad_accum, batch_size, seq_len]``."""

    ignores_unknown: ClassVar[bool] = True
    seq_len: Annotated[int, Integer(1, _LARGEST_ID - 1)]
    batch_size: Positive
    """Rows of a microbatch over all ranks."""
    grad_accum: Positive = 1

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What the model knows of tokens; what is null is taken from the tokenizer."""

    ignores_unknown: ClassVar[bool] = True
    vocab_size: Positive | None = None
    pad_token_id: TokenId | None = None
    bos_token_id: TokenId | None = None
    eos_token_id: TokenId | None = None
    segment_masking: bool = True
    """Read by the consumer's attention; the batch is the same either way."""

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """Everything that decides a stream, in a config that may be that of a whole training run."""

    ignores_unknown: ClassVar[bool] = True
    train: TrainOptions
    data: DataOptions = field(default_factory=DataOptions)
    model: ModelOptions = field(default_factory=ModelOptions)

    def __post_init__(self) -> None:
        for name, kind in _SECTIONS.items():
            section = getattr(self, name)
            if not isinstance(section, kind):
                raise InvalidOption(
                    f"{name} is a {type(section).__name__} but must be a {kind.__name__}; or give "
                    "open_stream the whole config as a dict"
                )
        streams, rows = self.data.num_streams, self.train.batch_size
        if rows % streams:
            raise InvalidOption(
                f"data.num_streams is {streams} but must divide train.batch_size, which is {rows}"
            )

    @property
    def window_size(self) -> int:
        """Tokens of a window: one more than ``seq_len``, as labels are shifted."""
        return self.train.seq_len + 1


_SECTIONS = {"train": TrainOptions, "data": DataOptions, "model": ModelOptions}
