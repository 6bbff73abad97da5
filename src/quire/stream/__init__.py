"""Streams: fixed-shape batches from an endless source, resumable at every step.

``source → shuffle → encode → mixture → packer → windows → batch``, one module a stage.
"""

from quire.stream.batch import Batch
from quire.stream.opening import open_stream
from quire.stream.options import (
    DataOptions,
    ModelOptions,
    SourceOptions,
    StreamConfig,
    TokenizerOptions,
    TrainOptions,
    WeightedSource,
)
from quire.stream.pipeline import Stream
from quire.stream.records import BadRecord
from quire.stream.sources import Shard, Shards
from quire.stream.state import load_state, save_state

save, load = save_state, load_state

__all__ = [
    "BadRecord",
    "Batch",
    "DataOptions",
    "ModelOptions",
    "Shard",
    "Shards",
    "SourceOptions",
    "Stream",
    "StreamConfig",
    "TokenizerOptions",
    "TrainOptions",
    "WeightedSource",
    "load",
    "load_state",
    "open_stream",
    "save",
    "save_state",
]
