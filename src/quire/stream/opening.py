"""`open_stream`: a config in, an iterator of batches out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from quire.config import load_options
from quire.errors import InvalidOption, SourceError
from quire.stream.batch import BatchMaker
from quire.stream.documents import BadRecordBudget, SourceDocuments
from quire.stream.encode import Encoder, make_encoder
from quire.stream.lane import Lane
from quire.stream.mixture import Mixture
from quire.stream.options import DataOptions, SourceOptions, StreamConfig
from quire.stream.packers import make_packer
from quire.stream.pipeline import Stream
from quire.stream.producer import Producer
from quire.stream.ranks import RankRows
from quire.stream.reader import Reader, RetryOptions
from quire.stream.shuffle import ShuffleWindows, WindowOptions
from quire.stream.sources import Shards, open_source
from quire.stream.vocabulary import open_tokenizer, resolved, terms_of, tokenizer_fingerprint
from quire.stream.walk import ShardWalk, Share
from quire.text import TokenizerLike


def open_stream(
    config: StreamConfig | Mapping[str, Any] | str | os.PathLike[str],
    *,
    rank: int = 0,
    world_size: int = 1,
    source: object | None = None,
    tokenizer: TokenizerLike | None = None,
) -> Stream:
    """The batches that a config (options, a dict or the path of a YAML file) tells of.

    ``source`` is read instead of what ``data`` names: a `datasets.IterableDataset`, or an object
    with shards as `Shards` says. ``tokenizer`` stands for the one that ``data.tokenizer`` names.

    >>> config = {
    ...     "data": {"backend": "local_text", "local_text": "abc", "repeat": False,
    ...              "tokenizer": {"kind": "byte"}},
    ...     "train": {"seq_len": 4, "batch_size": 1},
    ... }
    >>> with open_stream(config) as stream:
    ...     for batch in stream:
    ...         print(batch.input_ids.tolist(), batch.labels.tolist())
    [[[100, 101, 102, 2]]] [[[101, 102, 2, -100]]]
    """
    options = checked_config(config)
    rows = RankRows.of(options, rank, world_size)
    opened_tokenizer = open_tokenizer(options, tokenizer)
    options = resolved(options, opened_tokenizer)
    terms, maker = terms_of(options, opened_tokenizer), BatchMaker(options)
    sources, weights = _sources(options.data, source)
    encoder = make_encoder(opened_tokenizer, terms, options.data.num_workers)
    lanes = {stream: _lane(options, sources, weights, encoder, stream) for stream in rows.streams}
    pads_last = options.data.last_batch == "pad"
    return Stream(
        options,
        Producer(lanes, rows, maker, pads_last=pads_last),
        tokenizer_digest=tokenizer_fingerprint(opened_tokenizer, options.data.tokenizer),
        close=encoder.close,
    )


def checked_config(
    config: StreamConfig | Mapping[str, Any] | str | os.PathLike[str],
) -> StreamConfig:
    """The options in any form of a config; an object is held to the types of a file."""
    if isinstance(config, StreamConfig):
        return load_options(StreamConfig, asdict(config))
    if isinstance(config, Mapping | str | os.PathLike):
        return load_options(StreamConfig, config)
    raise InvalidOption(
        f"the config is a {type(config).__name__} but must be a StreamConfig, a dict or the path "
        "of a YAML file"
    )


def _sources(data: DataOptions, given: object | None) -> tuple[list[Shards], list[float]]:
    if not data.sources:
        return [open_source(data, given)], [1.0]
    if given is not None or _names_a_source(data):
        raise InvalidOption(
            "data.sources is a mixture, and there is another source beside it; put all sources "
            "into data.sources, and leave data.files, local_text and hf_dataset unset"
        )
    opened = [_open_part(source, number) for number, source in enumerate(data.sources)]
    return opened, [source.weight for source in data.sources]


def _open_part(source: SourceOptions, number: int) -> Shards:
    """A source of the mixture; its errors say which one it is."""
    try:
        return open_source(source)
    except (InvalidOption, SourceError) as error:
        name, said = f"data.sources[{number}]", str(error)
        is_option = said.startswith("data.")
        error.args = (f"{name}{said[4:]}" if is_option else f"{name}: {said}",)
        raise


def _names_a_source(data: SourceOptions) -> bool:
    return bool(data.files) or data.local_text is not None or data.hf_dataset is not None


def _lane(
    config: StreamConfig,
    sources: list[Shards],
    weights: list[float],
    encoder: Encoder,
    stream: int,
) -> Lane:
    budget = BadRecordBudget(config.data.max_bad_records)
    documents = [
        SourceDocuments(_windows(config.data, shards, number, stream), encoder, budget)
        for number, shards in enumerate(sources)
    ]
    vocab_size = config.model.vocab_size or 1 << 31
    return Lane(
        Mixture(documents, weights),
        make_packer(config.data, config.window_size, vocab_size),
        budget,
        window_size=config.window_size,
        vocab_size=vocab_size,
        num_specials=int(bool(config.data.tokenizer.add_bos)),
    )


def _windows(data: DataOptions, shards: Shards, source: int, stream: int) -> ShuffleWindows:
    share = Share(
        seed=data.seed,
        shuffle=data.shuffle,
        source=source,
        stream=stream,
        num_streams=data.num_streams,
    )
    retry = RetryOptions(
        max_retries=data.max_retries,
        delay=data.retry_delay_sec,
        mark_every=data.state_update_interval,
    )
    size = data.shuffle_buffer_size if data.shuffle else data.state_update_interval
    windows = WindowOptions(size=size, repeat=data.repeat)
    reader = Reader(ShardWalk(shards, share), retry)
    return ShuffleWindows(reader, share, windows)
