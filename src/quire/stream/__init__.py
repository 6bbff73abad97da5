"""Streams: fixed-shape batches from an endless source, resumable after every batch.

``open``: ``sources → reader → shuffle → encode → packers → row_stream → pipeline → stream``
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from quire.stream.batch import Batch
from quire.stream.chomp import (
    DataOptions,
    ModelOptions,
    SourceOptions,
    StreamConfig,
    TokenizerOptions,
    TrainOptions,
    WeightedSource,
)
from quire.stream.open import open_stream
from quire.stream.options import StreamOptions
from quire.stream.records import BadRecord
from quire.stream.sources import Shard, Shards
from quire.stream.state import load_state, save_state
from quire.stream.stream import Stream
from quire.stream.workers import latest_state

if TYPE_CHECKING:
    from quire.stream.grain_adapter import GrainBatches
    from quire.stream.jax_arrays import device_arrays
    from quire.stream.torch_adapter import TorchBatches

save, load = save_state, load_state

__all__ = [
    "BadRecord",
    "Batch",
    "DataOptions",
    "GrainBatches",
    "ModelOptions",
    "Shard",
    "Shards",
    "SourceOptions",
    "Stream",
    "StreamConfig",
    "StreamOptions",
    "TokenizerOptions",
    "TorchBatches",
    "TrainOptions",
    "WeightedSource",
    "device_arrays",
    "latest_state",
    "load",
    "load_state",
    "open_stream",
    "save",
    "save_state",
]

# What needs torch, grain or jax is imported on first use.
_LAZY = {
    "GrainBatches": "quire.stream.grain_adapter",
    "TorchBatches": "quire.stream.torch_adapter",
    "device_arrays": "quire.stream.jax_arrays",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
