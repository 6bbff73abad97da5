"""Batches from lanes: every stream of this rank, a step at a time."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from quire.errors import InvalidState
from quire.ledger import Ledger
from quire.stream.batch import Batch, BatchMaker
from quire.stream.lane import Lane, LaneSnapshot
from quire.stream.ranks import RankRows
from quire.stream.state import State


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is to know behind a batch; cheap to make, JSON when it is asked for."""

    step: int
    """Batches delivered."""
    epoch: int
    lanes: Mapping[int, LaneSnapshot]

    def ledger(self) -> Ledger:
        """The counts of all lanes together."""
        return sum((lane.ledger() for lane in self.lanes.values()), Ledger())

    def streams(self) -> dict[str, State]:
        """The state of every lane, in JSON."""
        return {str(stream): lane.to_json() for stream, lane in self.lanes.items()}


class Producer:
    """Makes batches one after the other."""

    def __init__(
        self, lanes: Mapping[int, Lane], rows: RankRows, maker: BatchMaker, *, pads_last: bool
    ) -> None:
        self._lanes, self._rows, self._maker = dict(lanes), rows, maker
        self._pads_last = pads_last
        self._step = 0
        self._num_padded = 0
        """Batches that were not full."""

    def next(self) -> Batch:
        """The next batch; StopIteration when all streams are over."""
        count = self._rows.rows_per_stream
        for lane in self._lanes.values():  # nothing is taken before all is there
            lane.fill(count)
        ready = [min(count, lane.num_ready) for lane in self._lanes.values()]
        if not any(ready):
            raise StopIteration
        if min(ready) < count and not self._pads_last:
            self._drop_rest()
            raise StopIteration
        if min(ready) < count:
            self._count_padded(dict(zip(self._lanes, ready, strict=True)))
        taken = {stream: lane.take(count) for stream, lane in self._lanes.items()}
        for stream, windows in taken.items():
            self._lanes[stream].pad(count - len(windows))
        self._step += 1
        return self._maker.make(self._rows.arrange(taken), self._rows.num_microbatches)

    def snapshot(self) -> Snapshot:
        """What is to know at this moment."""
        return Snapshot(
            step=self._step,
            epoch=min(lane.epoch for lane in self._lanes.values()),
            lanes={stream: lane.snapshot() for stream, lane in self._lanes.items()},
        )

    def restore(self, step: int, streams: Mapping[str, State]) -> None:
        """Continue behind the batch of a snapshot; other streams than this rank's are ignored."""
        for stream in self._lanes:
            if str(stream) not in streams:
                raise InvalidState(
                    f"the state holds the streams {', '.join(sorted(streams))} but this rank needs "
                    f"stream {stream}; pass the states of all ranks as a list"
                )
        for stream, lane in self._lanes.items():
            lane.restore(streams[str(stream)])
        self._step, self._num_padded = step, 0

    def _count_padded(self, ready: Mapping[int, int]) -> None:
        """Warn at the second batch that is not full: one alone is the end of all streams."""
        self._num_padded += 1
        if self._num_padded != 2:
            return
        count, num_streams = self._rows.rows_per_stream, len(ready)
        ended = [str(stream) for stream, rows in ready.items() if rows < count]
        padding = count * num_streams - sum(ready.values())
        warnings.warn(
            f"of {num_streams} streams, {', '.join(ended)} ended before the others, so batches are "
            f"padded until all have ended: {padding} of {count * num_streams} rows in batch "
            f"{self._step}; data.num_streams: 1 pads only the last batch, data.last_batch: drop "
            "ends with the first stream",
            stacklevel=4,
        )

    def _drop_rest(self) -> None:
        for lane in self._lanes.values():
            while lane.drop():
                pass
