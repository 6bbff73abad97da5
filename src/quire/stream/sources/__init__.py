"""Where documents come from: shards, each of which opens at a cursor."""

from quire.stream.sources.opening import open_source
from quire.stream.sources.shards import Shard, Shards

__all__ = ["Shard", "Shards", "open_source"]
