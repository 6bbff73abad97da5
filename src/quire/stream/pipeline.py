"""Batches of one rank, made from the windows of its streams, one step at a time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from quire.errors import InvalidOption, InvalidState
from quire.ledger import Ledger
from quire.stream.batch import Batch, BatchMaker
from quire.stream.options import StreamOptions
from quire.stream.row_stream import RowStream, RowStreamSnapshot
from quire.stream.state import State

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankRows:
    """Which rows of the global batch a rank keeps, and which streams it runs to make them.

    A batch has B columns. Stream s of S owns the columns ``[s * B/S, (s+1) * B/S)``, rank r of W
    keeps ``[r * B/W, (r+1) * B/W)``: side by side, the ranks' batches are the global batch.
    """

    options: StreamOptions
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        rank, world_size, batch_size = self.rank, self.world_size, self.options.batch_size
        if rank >= world_size:
            raise InvalidOption(f"rank is {rank} but must be below world_size, {world_size}")
        if batch_size % world_size:
            raise InvalidOption(
                f"world_size is {world_size} but must divide {self.options.name('batch_size')}, "
                f"which is {batch_size}"
            )

    @property
    def columns(self) -> range:
        """The columns that this rank keeps."""
        width = self.options.batch_size // self.world_size
        return range(self.rank * width, (self.rank + 1) * width)

    @property
    def streams(self) -> list[int]:
        """The streams that this rank runs: all if they end, as an end is known only by running.

        >>> options = StreamOptions(max_length=8, batch_size=8, num_streams=4)
        >>> RankRows(options=options, rank=1, world_size=2).streams
        [2, 3]
        >>> RankRows(options=options, rank=5, world_size=8).streams
        [2]
        """
        if not self.options.repeat:
            return list(range(self.options.num_streams))
        return sorted({column // self._columns_per_stream for column in self.columns})

    @property
    def rows_per_stream(self) -> int:
        """Windows of each stream in a global batch."""
        return self.options.grad_accum * self._columns_per_stream

    def arrange(self, rows: Mapping[int, Sequence[Row]]) -> list[Row | None]:
        """The rows of this rank's batch from the rows of each stream; None where one is missing."""
        arranged: list[Row | None] = []
        for microbatch in range(self.options.grad_accum):
            for column in self.columns:
                stream, place = divmod(column, self._columns_per_stream)
                number = microbatch * self._columns_per_stream + place
                of_stream = rows[stream]
                arranged.append(of_stream[number] if number < len(of_stream) else None)
        return arranged

    @property
    def _columns_per_stream(self) -> int:
        return self.options.batch_size // self.options.num_streams


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The pipeline after a batch: cheap to make, JSON when it is needed."""

    step: int
    """Batches delivered."""
    epoch: int
    streams: Mapping[int, RowStreamSnapshot]

    def ledger(self) -> Ledger:
        """The counts of all streams together."""
        return sum((stream.ledger() for stream in self.streams.values()), Ledger())

    def state_dict(self) -> dict[str, State]:
        """The state of every stream."""
        return {str(number): stream.state_dict() for number, stream in self.streams.items()}


class Pipeline:
    """Makes one batch after another."""

    def __init__(
        self, options: StreamOptions, rows: RankRows, streams: Mapping[int, RowStream]
    ) -> None:
        self._options, self._rows, self._streams = options, rows, dict(streams)
        self._maker = BatchMaker(options)
        self._step = 0
        self._num_padded = 0
        """Batches that were not full."""

    def next(self) -> Batch:
        """The next batch; StopIteration when all streams have ended."""
        count = self._rows.rows_per_stream
        for stream in self._streams.values():  # nothing is taken before everything is there
            stream.fill(count)
        ready = {number: min(count, s.num_ready) for number, s in self._streams.items()}
        if not any(ready.values()):
            raise StopIteration
        if min(ready.values()) < count:
            if self._options.last_batch == "drop":
                self._drop_rest()
                raise StopIteration
            self._count_padded(ready)
        taken = {number: stream.take(count) for number, stream in self._streams.items()}
        self._step += 1
        return self._maker.make(self._rows.arrange(taken), self._options.grad_accum)

    def snapshot(self) -> Snapshot:
        """This moment."""
        return Snapshot(
            step=self._step,
            epoch=min(stream.epoch for stream in self._streams.values()),
            streams={number: stream.snapshot() for number, stream in self._streams.items()},
        )

    def load_state_dict(self, step: int, streams: Mapping[str, State]) -> None:
        """Continue after a step; streams of other ranks are ignored."""
        for number in self._streams:
            if str(number) not in streams:
                raise InvalidState(
                    f"the state holds the streams {', '.join(sorted(streams))} but this rank needs "
                    f"stream {number}; pass the states of all ranks as a list"
                )
        for number, stream in self._streams.items():
            stream.load_state_dict(streams[str(number)])
        self._step, self._num_padded = step, 0

    def _count_padded(self, ready: Mapping[int, int]) -> None:
        """Warn at the second batch that is not full: a single one is the end of all streams."""
        self._num_padded += 1
        if self._num_padded != 2:
            return
        name = self._options.name
        count, num_streams = self._rows.rows_per_stream, len(ready)
        ended = [str(number) for number, rows in ready.items() if rows < count]
        padding = count * num_streams - sum(ready.values())
        warnings.warn(
            f"of {num_streams} streams, {', '.join(ended)} ended before the others, so batches are "
            f"padded until all have ended: {padding} of {count * num_streams} rows in batch "
            f"{self._step}; {name('num_streams')}: 1 pads only the last batch, "
            f"{name('last_batch')}: drop ends with the first stream",
            stacklevel=4,
        )

    def _drop_rest(self) -> None:
        for stream in self._streams.values():
            while stream.drop():
                pass
