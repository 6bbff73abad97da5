"""chomp's config: sections ``data``, ``train`` and ``model``, translated to `StreamOptions` once.

Error messages keep the dotted names of the config, which the translated options carry along.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from quire.config import load_options
from quire.errors import InvalidOption, missing_dependency
from quire.options import Count, Integer, Options, Positive, TokenizerEngine
from quire.stream.options import (
    INDECISIVE,
    SPECIAL_IDS,
    MixtureSource,
    PipelineFields,
    RowLength,
    SourceFields,
    StreamOptions,
    TokenId,
    Weight,
)
from quire.text import ByteTokenizer, Tokenizer, TokenizerLike, as_tokenizer
from quire.text.tokenizer import adds_bos

ByteOffset = Annotated[int, Integer(0, (1 << 31) - 256)]
STRATEGIES = {"sequential": "wrapped", "bin": "first_fit", "online": "online"}


@dataclass(frozen=True, kw_only=True)
class SourceOptions(SourceFields):
    """Where documents come from."""

    text_key: str = "text"
    """The column that holds the text."""


@dataclass(frozen=True, kw_only=True)
class WeightedSource(SourceOptions):
    """One source of a mixture."""

    weight: Weight = 1.0
    """Share of the tokens, relative to the other weights."""


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions(Options):
    """How texts become tokens."""

    kind: Literal["hf", "byte"] = "hf"
    """A tokenizer of transformers, or one token for each byte."""
    hf_name_or_path: str | None = None
    """The folder, ``tokenizer.json`` or hub name of an hf tokenizer."""
    add_bos: bool | None = False
    """None: if the tokenizer itself adds it."""
    add_eos: bool = True
    """End every document with EOS."""
    byte_offset: ByteOffset = 3
    """The token of byte 0; the ids below it are for special tokens."""
    vocab_size_multiple: Positive = 128
    """``model.vocab_size`` of an hf tokenizer is rounded up to a multiple of this."""
    auto_set_special_tokens: bool = True
    """Whether ``model`` takes over the special ids of an hf tokenizer."""
    max_doc_tokens: Positive | None = None
    """Cut documents to this many tokens, before specials are added; the rest is counted."""
    tokenizer_engine: TokenizerEngine = "auto"
    """The library that tokenizes; all give the same ids."""


@dataclass(frozen=True, kw_only=True)
class DataOptions(PipelineFields, SourceOptions):
    """Documents, their order, and how they become windows."""

    sources: tuple[WeightedSource, ...] = ()
    """A mixture, instead of a single source."""
    tokenizer: TokenizerOptions = field(default_factory=TokenizerOptions)
    """How texts become tokens."""
    packing_mode: Literal["sequential", "bin", "online"] = "sequential"
    """How documents become rows: end to end, first-fit in a buffer, or the oldest
    with what fills its row."""
    packing_buffer_docs: Positive = 128
    """Documents buffered by the packer; no effect in sequential mode."""
    packing_max_docs_per_bin: Positive | None = None
    """The most documents in a row; no effect in sequential mode."""
    grain_prefetch: Count = 0
    """Batches made ahead in a thread."""


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """The shape of a batch: ``[grad_accum, batch_size, seq_len]``."""

    ignores_unknown: ClassVar[bool] = True
    seq_len: RowLength
    """Tokens in a row."""
    batch_size: Positive
    """Rows in a microbatch, over all ranks."""
    grad_accum: Positive = 1
    """Microbatches in a step."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """What the model knows about tokens; by default taken from the tokenizer."""

    ignores_unknown: ClassVar[bool] = True
    vocab_size: Positive | None = None
    """The size of the vocabulary; no token may be outside it."""
    pad_token_id: TokenId | None = None
    """The token that fills rows."""
    bos_token_id: TokenId | None = None
    """The token at the start of a document."""
    eos_token_id: TokenId | None = None
    """The token at the end of a document."""
    segment_masking: bool = True
    """Read by the consumer's attention; the batch is the same either way."""


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


_SECTIONS = {"train": TrainOptions, "data": DataOptions, "model": ModelOptions}
_RENAMED = {
    "seq_len": "max_length",
    "text_key": "text_column",
    "max_doc_tokens": "truncate_to",
    "packing_mode": "strategy",
    "packing_buffer_docs": "buffer_size",
    "packing_max_docs_per_bin": "max_documents_per_row",
    "grain_prefetch": "prefetch",
}
"""chomp's words for options of a stream; the others have the same name in both."""


def _names() -> dict[str, str]:
    known = {option.name for option in fields(StreamOptions)}
    sections = {"data.tokenizer": TokenizerOptions, **_SECTIONS}
    dotted = {
        _RENAMED.get(option.name, option.name): f"{section}.{option.name}"
        for section, kind in sections.items()
        for option in fields(kind)
    }
    return {name: there for name, there in dotted.items() if name in known}


NAMES = _names()
"""The options of a stream with their dotted names in the config."""


def load_config(config: StreamConfig | Mapping[str, Any] | str | os.PathLike[str]) -> StreamConfig:
    """The config in any of its forms; an object must have the same types as a file."""
    if isinstance(config, StreamConfig):
        return load_options(StreamConfig, asdict(config))
    if isinstance(config, Mapping | str | os.PathLike):
        return load_options(StreamConfig, config)
    raise InvalidOption(
        f"the config is a {type(config).__name__} but must be a StreamConfig, a dict or the path "
        "of a YAML file; or give options as keywords"
    )


def stream_options(config: StreamConfig) -> StreamOptions:
    """The config in the words of quire."""
    values = {name: attrgetter(dotted)(config) for name, dotted in NAMES.items()}
    values["strategy"] = STRATEGIES[values["strategy"]]
    names = dict(NAMES)
    sources = []
    for number, source in enumerate(config.data.sources):
        own = {_RENAMED.get(option.name, option.name): option.name for option in fields(source)}
        dotted = {name: f"data.sources[{number}].{theirs}" for name, theirs in own.items()}
        plain = {name: getattr(source, theirs) for name, theirs in own.items()}
        sources.append(MixtureSource(**plain, names=dotted))
        names |= {f"sources[{number}].{name}": there for name, there in dotted.items()}
    return StreamOptions(**{**values, "sources": tuple(sources)}, names=names)


def translated_options(flat: Mapping[str, object]) -> dict[str, object]:
    """The options of a state of version 2, by dotted name, as a state of version 3 has them."""
    ours = {dotted: name for name, dotted in NAMES.items()}
    translated: dict[str, object] = {"drop_longer_than": None}
    for dotted, value in flat.items():
        if (name := ours.get(dotted)) is not None:
            translated[name] = value
        elif part := re.fullmatch(r"data\.(sources(?:\[\d+\])?\.)(\w+)", dotted):
            translated[part[1] + _RENAMED.get(part[2], part[2])] = value
        elif not dotted.startswith(("data.", "train.", "model.")):
            translated[dotted] = value
    if "strategy" in translated:
        translated["strategy"] = STRATEGIES.get(str(translated["strategy"]))
    return {name: value for name, value in translated.items() if not INDECISIVE.fullmatch(name)}


def config_tokenizer(config: StreamConfig, given: TokenizerLike | None = None) -> Tokenizer:
    """The given tokenizer, or the one that the config names."""
    options, model = config.data.tokenizer, config.model
    if given is not None:
        return as_tokenizer(given)
    if options.kind == "byte":
        ids = {name: getattr(model, name) for name in SPECIAL_IDS}
        ids = {name: token for name, token in ids.items() if token is not None}
        return ByteTokenizer(byte_offset=options.byte_offset, **ids)
    name = options.hf_name_or_path
    if name is None:
        raise InvalidOption(
            "data.tokenizer.hf_name_or_path is null but kind hf needs a name or a path; or set "
            "data.tokenizer.kind to byte"
        )
    path = Path(name)
    if path.is_file() or (path / "tokenizer.json").is_file():
        return as_tokenizer(path)
    return as_tokenizer(_from_transformers(name))


def tokenizer_values(config: StreamConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """What the config leaves to the tokenizer, as options of a stream."""
    add_bos = config.data.tokenizer.add_bos
    adds = {
        "bos": adds_bos(tokenizer) if add_bos is None else add_bos,
        "eos": config.data.tokenizer.add_eos,
    }
    ids = _special_ids(config, tokenizer, adds)
    return {"add_bos": adds["bos"], "vocab_size": _vocab_size(config, tokenizer.vocab_size), **ids}


def resolved_config(config: StreamConfig, options: StreamOptions) -> StreamConfig:
    """The config with what the options have from the tokenizer filled in."""
    tokenizer = replace(config.data.tokenizer, add_bos=options.add_bos)
    ids = {name: getattr(options, name) for name in ("vocab_size", *SPECIAL_IDS)}
    data, model = replace(config.data, tokenizer=tokenizer), replace(config.model, **ids)
    return replace(config, data=data, model=model)


def _special_ids(
    config: StreamConfig, tokenizer: Tokenizer, adds: Mapping[str, bool]
) -> dict[str, int | None]:
    options = config.data.tokenizer
    ids: dict[str, int | None] = {name: getattr(config.model, name) for name in SPECIAL_IDS}
    own = {name: getattr(tokenizer, name) for name in SPECIAL_IDS}
    if options.kind == "byte" or options.auto_set_special_tokens:
        ids |= {name: token for name, token in own.items() if token is not None}
    for name, is_added in adds.items():
        token = own[f"{name}_token_id"]
        if is_added and token is not None and ids[f"{name}_token_id"] is None:
            raise InvalidOption(
                f"data.tokenizer.add_{name} is true and model.{name}_token_id is not set, and "
                "data.tokenizer.auto_set_special_tokens is false, so the tokenizer's own "
                f"{name.upper()} ({token}) is not used; set model.{name}_token_id to {token}, "
                f"auto_set_special_tokens to true, or data.tokenizer.add_{name} to false"
            )
    if ids["pad_token_id"] is None:  # padding is known from lengths, so any id will do
        ids["pad_token_id"] = ids["eos_token_id"] or 0
    return ids


def _vocab_size(config: StreamConfig, own: int | None) -> int | None:
    options, size = config.data.tokenizer, config.model.vocab_size
    if options.kind == "hf":
        multiple = options.vocab_size_multiple
        return -(-max(size or 1, own or 1) // multiple) * multiple
    if own is not None and size is not None and size < own:
        raise InvalidOption(
            f"model.vocab_size is {size} but the byte tokenizer has {own} ids (256 bytes from "
            f"data.tokenizer.byte_offset {options.byte_offset} on); raise it"
        )
    return size or own


def _from_transformers(name: str) -> object:
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError:
        raise missing_dependency("transformers", f"the tokenizer {name!r}", "hf") from None
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise InvalidOption(
            f"data.tokenizer.hf_name_or_path is {name!r}, but no tokenizer can be loaded from it: "
            f"{error}"
        ) from error
