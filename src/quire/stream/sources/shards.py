"""What a source is: a number of shards, each read from any of its own cursors on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from quire.stream.records import Record


class Shard(Protocol):
    """One shard, open; it may be dead after it raised, as it is opened again then."""

    def next(self) -> Record:
        """The next record; StopIteration behind the last."""

    def cursor(self) -> Any:  # noqa: ANN401 - whatever JSON the source likes
        """The place behind the record that was given last, for JSON."""


class Shards(Protocol):
    """A source; implement this to stream from your own."""

    @property
    def names(self) -> Sequence[str]:
        """One name a shard, the same in every run; a change of them is a change of the source."""

    def open(self, number: int, cursor: Any | None) -> Shard:  # noqa: ANN401
        """The shard from its start, or from a cursor that it gave."""
