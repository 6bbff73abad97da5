"""Batches of one rank, made from the windows of its streams, one step at a time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from quire.errors import InvalidState
from quire.ledger import Ledger
from quire.stream.batch import Batch, BatchMaker
from quire.stream.options import StreamOptions
from quire.stream.ranks import RankRows
from quire.stream.row_stream import RowStream, RowStreamSnapshot
from quire.stream.state import State


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
