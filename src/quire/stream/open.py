"""`open_stream`: options in, an iterator of batches out."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, cast

from quire.errors import InvalidOption
from quire.formats.bad_records import BadRecordBudget
from quire.formats.files import find_paths
from quire.options import Count, Options, Positive
from quire.options.names import option, setting
from quire.options.nested import build_options
from quire.stream.answers import Answers
from quire.stream.chomp import (
    StreamConfig,
    config_tokenizer,
    load_config,
    stream_options,
    tokenizer_values,
)
from quire.stream.encode import Encoder, SourceCoder, make_encoder
from quire.stream.options import StreamOptions
from quire.stream.pipeline import Pipeline, RankRows
from quire.stream.reader import RetryingReader, ShardReader, Share
from quire.stream.reading import Reading
from quire.stream.row_stream import Mixture, RowStream
from quire.stream.shuffle import ShuffleWindows, SourceDocuments
from quire.stream.sources import Shards, open_source, reading_of
from quire.stream.stream import Saved, Stream, require_config
from quire.stream.tokens import TokenCoder, reads_corpus
from quire.text import Tokenizer, TokenizerLike, as_tokenizer
from quire.text.engine import engine_record, open_tokenizer
from quire.text.fast_tokenizer import ENOUGH
from quire.text.fingerprint import tokenizer_digest

ConfigLike: TypeAlias = StreamConfig | Mapping[str, Any] | str | os.PathLike[str]
_UNFRAMED: Mapping[str, Any] = {"add_bos": False, "add_eos": False}
_NO_TOKENIZER = "none"
"""What states record for a stream that needs no tokenizer."""


def open_stream(
    config: ConfigLike | None = None,
    *,
    rank: int = 0,
    world_size: int = 1,
    source: object | None = None,
    tokenizer: TokenizerLike | None = None,
    **options: Any,  # noqa: ANN401 - the fields of StreamOptions, checked there
) -> Stream:
    """The batches of a stream, from keywords (`StreamOptions`) or from a config.

    A config (a `StreamConfig`, a dict or the path of a YAML file) has the sections ``data``,
    ``train`` and ``model``. ``source`` is read instead of what the options name: a
    `datasets.IterableDataset`, or an object with shards as described by `Shards`. ``tokenizer``
    is ``"byte"``, a path or an object; with a config it replaces ``data.tokenizer``.

    >>> keywords = dict(local_text="abc", tokenizer="byte", max_length=4, batch_size=1)
    >>> with open_stream(**keywords, add_bos=False, repeat=False) as stream:
    ...     for batch in stream:
    ...         print(batch.input_ids.tolist(), batch.labels.tolist())
    [[[100, 101, 102, 2]]] [[[101, 102, 2, -100]]]
    """
    arguments = StreamArguments.of(
        config, options, rank=rank, world_size=world_size, source=source, tokenizer=tokenizer
    )
    return arguments.open()


@dataclass(frozen=True, kw_only=True)
class StreamArguments(Options):
    """The arguments of `open_stream`, checked; loaders send them to their workers."""

    options: StreamOptions
    config: StreamConfig | None = None
    """What the options were translated from, if it was a config."""
    rank: Count = 0
    world_size: Positive = 1
    source: object | None = None
    tokenizer: TokenizerLike | None = None

    @classmethod
    def of(
        cls,
        config: ConfigLike | None,
        options: Mapping[str, Any],
        **given: Any,  # noqa: ANN401 - the other fields
    ) -> StreamArguments:
        """The arguments from a config of any form, or from keywords; a file is read at once."""
        if config is None and options:
            return cls(options=_from_keywords(options, given["tokenizer"]), **given)
        if options:
            raise InvalidOption(
                f"there are a config and the keywords {', '.join(options)}; give one or the other"
            )
        loaded = load_config(config)  # type: ignore[arg-type]
        return cls(options=stream_options(loaded), config=loaded, **given)

    def resolved(self, readings: Sequence[Reading] = ()) -> tuple[StreamOptions, Tokenizer | None]:
        """The options with what was left to the records and the tokenizer; and the tokenizer.

        Records that a chat template renders, and tokens, get no BOS and EOS of ours.
        """
        options = self._with_kinds(readings)
        has_specials = bool(readings) and all(reading.has_specials for reading in readings)
        framing = _UNFRAMED if has_specials else {}
        if self.config is None and self.tokenizer is None:  # all sources hold tokens
            return replace(options, **_UNFRAMED).checked_specials(), None
        if self.config is None:
            tokenizer = as_tokenizer(self.tokenizer)
            return options.with_tokenizer(tokenizer, **framing), tokenizer
        tokenizer = config_tokenizer(self.config, self.tokenizer)
        values = {**tokenizer_values(self.config, tokenizer), **framing}
        return replace(options, **values).checked_specials(), tokenizer

    def _with_kinds(self, readings: Sequence[Reading]) -> StreamOptions:
        """The options with the kinds of records that the sources hold."""
        found = tuple(reading.options for reading in readings)
        if self.options.sources and found:
            return replace(self.options, sources=cast(Any, found))
        return cast(StreamOptions, found[0]) if found else self.options

    def _named_tokenizer(self) -> TokenizerLike:
        """The tokenizer as it was named, of which chat templates are loaded."""
        if self.tokenizer is not None or self.config is None:
            return cast(TokenizerLike, self.tokenizer)
        named = self.config.data.tokenizer
        return named.hf_name_or_path or "byte"

    def open(self) -> Stream:
        """The stream."""
        rows = RankRows(options=self.options, rank=self.rank, world_size=self.world_size)
        sources = _open_sources(self.options, self.source, self._named_tokenizer())
        named = self.options.sources or (self.options,)
        readings = [reading_of(one, given) for one, given in zip(sources, named, strict=True)]
        options, tokenizer = self.resolved(readings)
        _require_one_framing(options, readings, given_bos=bool(self.options.add_bos))
        # Workers get what was compared here; without them, little text needs no fast engine.
        num_bytes = ENOUGH if options.num_workers else None
        engine = tokenizer and open_tokenizer(tokenizer, options.tokenizer_engine, num_bytes)
        coders = [self._coder(reading, options, engine, num_bytes) for reading in readings]
        encoder = make_encoder(engine, options, coders)
        streams = {n: _row_stream(options, sources, encoder, n) for n in rows.streams}
        return Stream(
            options,
            Pipeline(options, rows, streams),
            tokenizer_digest=tokenizer_digest(tokenizer, self._tokenizer_file())
            if tokenizer
            else _NO_TOKENIZER,
            engine=partial(engine_record, engine),
            close=encoder.close,
            config=self.config,
        )

    def _coder(
        self,
        reading: Reading,
        options: StreamOptions,
        engine: Tokenizer | None,
        num_bytes: int | None,
    ) -> SourceCoder | None:
        """What makes documents of a source's records; None for texts."""
        if engine is None or reading.is_tokens:
            return TokenCoder(options=options)
        return Answers.of(reading, options, engine, self._named_tokenizer(), num_bytes)

    def _tokenizer_file(self) -> str | None:
        """The file or folder that the tokenizer was loaded from, if it has one."""
        if self.config is not None:
            named = self.config.data.tokenizer
            return named.hf_name_or_path if named.kind == "hf" else None
        given = self.tokenizer
        return os.fspath(given) if isinstance(given, str | os.PathLike) else None


class LoaderDataset:
    """What the datasets for torch and grain share: the arguments, and where every pass starts."""

    def __init__(
        self,
        config: ConfigLike | None = None,
        *,
        rank: int = 0,
        world_size: int = 1,
        source: object | None = None,
        tokenizer: TokenizerLike | None = None,
        state: Saved | None = None,
        **options: Any,  # noqa: ANN401 - the fields of StreamOptions, checked there
    ) -> None:
        super().__init__()
        given = {"rank": rank, "world_size": world_size, "source": source, "tokenizer": tokenizer}
        self._arguments = StreamArguments.of(config, options, **given)
        self._start = state

    def __repr__(self) -> str:
        options, rank = self._arguments.options, f"rank {self.rank} of {self.world_size}"
        shape = f"[{options.batch_size}, {options.max_length}]"
        return f"{type(self).__name__}(batches {shape}, {options.strategy}, {rank})"

    @property
    def options(self) -> StreamOptions:
        """The options, with everything that was left to the tokenizer filled in."""
        return self._arguments.resolved()[0]

    @property
    def rank(self) -> int:
        """The rank whose batches these are."""
        return self._arguments.rank

    @property
    def world_size(self) -> int:
        """The ranks that share the stream."""
        return self._arguments.world_size

    @property
    def config(self) -> StreamConfig:
        """The config that was given, with everything filled in."""
        return require_config(self._arguments.config, self.options)

    def _open_stream(self, *, prefetch: bool = True) -> Stream:
        """The stream; a loader's worker cannot start processes of its own to tokenize."""
        arguments, options = self._arguments, self._arguments.options
        if multiprocessing.current_process().daemon and options.num_workers:
            raise InvalidOption(
                f"{options.name('num_workers')} is {options.num_workers} but a loader's worker "
                "cannot start processes of its own; set it to 0, or the loader's num_workers"
            )
        if not prefetch:
            arguments = replace(arguments, options=replace(options, prefetch=0))
        return arguments.open()


def _from_keywords(keywords: Mapping[str, Any], tokenizer: TokenizerLike | None) -> StreamOptions:
    plain = _with_listed_files(keywords)
    if isinstance(sources := plain.get("sources"), list | tuple):
        plain["sources"] = [
            _with_listed_files(source) if isinstance(source, Mapping) else source
            for source in sources
        ]
    options = build_options(StreamOptions, plain)
    named = options.sources or (options,)
    if tokenizer is None and (texts := [one for one in named if not reads_corpus(one)]):
        for source in texts:
            if source.files:
                find_paths(source.files, option="files", pattern=source.pattern)  # are they there?
        raise InvalidOption(
            "tokenizer is missing; give 'byte', a path or a tokenizer object (only a tokenized "
            "corpus needs none: give the format if it is Arrow or parquet)"
        )
    return options


def _with_listed_files(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords, in which the files may have been a single pattern."""
    files = plain.get("files")
    return (
        {**plain, "files": [os.fspath(files)]}
        if isinstance(files, str | os.PathLike)
        else {**plain}
    )


def _require_one_framing(
    options: StreamOptions, readings: Sequence[Reading], *, given_bos: bool
) -> None:
    """Raise if BOS and EOS would be added to the texts of a mixture and not to other records."""
    if given_bos and any(reading.is_tokens for reading in readings):
        raise InvalidOption(
            f"{setting('add_bos', True)} changes documents, but those of a tokenized corpus are "
            f"read as they are; leave {option('add_bos')} out"
        )
    if (options.bos, options.eos) == (None, None):
        return
    framed = [number for number, reading in enumerate(readings) if reading.has_specials]
    if framed and len(framed) < len(readings):
        holds = (
            "holds tokens, which are read as they are"
            if readings[framed[0]].is_tokens
            else "is rendered by a chat template, which writes special tokens itself"
        )
        raise InvalidOption(
            f"sources[{framed[0]}] {holds}, and other sources would get BOS or EOS; set add_bos "
            "and add_eos to False for all of them, or open two streams"
        )


def _open_sources(
    options: StreamOptions, given: object | None, tokenizer: TokenizerLike
) -> list[Shards]:
    if not options.sources:
        return [open_source(options, given, tokenizer)]
    if given is not None:
        raise InvalidOption(
            f"{options.name('sources')} is a mixture, but there is another source besides it; "
            "leave source out, or the mixture"
        )
    return [open_source(source, tokenizer=tokenizer) for source in options.sources]


def _row_stream(
    options: StreamOptions, sources: list[Shards], encoder: Encoder, stream: int
) -> RowStream:
    budget = BadRecordBudget(options.max_bad_records, options.name("max_bad_records"))
    documents = []
    for number, shards in enumerate(sources):
        share = Share(options=options, source=number, stream=stream)
        windows = ShuffleWindows(RetryingReader(ShardReader(shards, share), options), share)
        documents.append(SourceDocuments(windows, encoder, budget, number))
    weights = [source.weight for source in options.sources] or [1.0]
    return RowStream(options, Mixture(documents, weights), budget)
