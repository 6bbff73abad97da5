"""A stream's batches shared by loader workers: all to one, or every N-th to each of N.

Loaders ask their N workers in turn. Worker i reads the whole stream and delivers the batches i,
i + N, i + 2N, …; so the loader delivers the stream itself, whatever N is. A batch may be delivered
in pieces, its microbatches; the state is the position after the last piece.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from quire.errors import InvalidState
from quire.printable import counted
from quire.stream.batch import Batch
from quire.stream.state import State, read_count, read_counts, read_fields
from quire.stream.stream import Saved, Stream

FORMAT = "quire.stream.dealt"
_FIELDS = ("format", "part", "pieces", "first", "used", "stream", "checksum")


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """One of ``count`` workers, which delivers every ``count``-th piece."""

    index: int = 0
    count: int = 1

    def delivers(self, number: int) -> bool:
        """Whether this worker delivers the piece of this number.

        >>> [number for number in range(8) if Worker(index=1, count=3).delivers(number)]
        [1, 4, 7]
        """
        return number % self.count == self.index


ONLY = Worker()
"""The worker that delivers everything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """The position of a worker after a piece of a batch."""

    stream: Mapping[str, Any]
    """The state of the stream before that piece's batch, or after the last piece of one."""
    used: int = 0
    """Pieces of the batch that follows ``stream`` which come before this position."""
    pieces: int = 1
    """Pieces of every batch."""
    worker: Worker = ONLY
    first: int = 0
    """The number of the piece at which the workers started taking turns."""

    @classmethod
    def of(cls, state: object) -> Position:
        """The position in a worker's state, or in a `Stream`'s own."""
        if isinstance(state, Mapping) and not _is_workers(state):
            return cls(stream=state)
        fields = read_fields("a worker's state", state, _FIELDS)
        index, count = read_counts("part", fields["part"], 2)
        pieces = read_count("pieces", fields["pieces"])
        position = cls(
            stream=fields["stream"],
            used=read_count("used", fields["used"], most=max(pieces - 1, 0)),
            pieces=pieces,
            worker=Worker(index=index, count=count),
            first=read_count("first", fields["first"]),
        )
        if index >= count or pieces < 1 or position.first > position.number:
            raise InvalidState(
                f"the state is of worker {index} of {count}, from piece {position.first} to "
                f"{position.number}, with {pieces} pieces per batch, which is impossible"
            )
        if fields["checksum"] != position._checksum():
            raise InvalidState(
                f"the worker's state has checksum {fields['checksum']!r} but its content "
                f"{position._checksum()!r}: it was damaged or changed; use an earlier state"
            )
        return position

    def state_dict(self) -> State:
        """The state of a worker at this position."""
        return {
            "format": FORMAT,
            "part": [self.worker.index, self.worker.count],
            "pieces": self.pieces,
            "first": self.first,
            "used": self.used,
            "stream": dict(self.stream),
            "checksum": self._checksum(),
        }

    @property
    def step(self) -> int:
        """Whole batches before ``stream``."""
        if not isinstance(self.stream, Mapping):
            raise InvalidState(f"a stream's state is a dict, not a {type(self.stream).__name__}")
        return read_count("step", self.stream.get("step"))

    @property
    def number(self) -> int:
        """Pieces of the whole stream before this position."""
        return self.step * self.pieces + self.used

    @property
    def is_shared(self) -> bool:
        """Whether all workers may continue from here: it is of one worker, or where turns start.

        Any other position follows a piece of one worker and says nothing about the others.
        """
        return self.worker == ONLY or self.number == self.first

    def _checksum(self) -> str:
        # The checksum of the stream's state represents that state here.
        inner = self.stream.get("checksum") if isinstance(self.stream, Mapping) else None
        worker = self.worker
        content = [worker.index, worker.count, self.pieces, self.first, self.used, inner]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


class WorkerBatches:
    """An iterator of (batch, number of the piece in it), with a state after each."""

    def __init__(
        self,
        open_new: Callable[[], Stream],
        *,
        worker: Worker = ONLY,
        pieces: int = 1,
        start: Saved | None = None,
    ) -> None:
        self._stream = open_new()
        self._worker, self._pieces = worker, pieces
        self._step, self._used, self._first = 0, 0, 0
        self._before: Callable[[], State] | None = None
        self._failure: Exception | None = None
        if start is not None:
            self.load_state_dict(start)

    def __iter__(self) -> WorkerBatches:
        return self

    def __next__(self) -> tuple[Batch, int]:
        if self._failure is not None:
            raise self._failure
        try:
            while not self._worker.delivers(self._number - self._first):
                self._advance()
            return self._advance()
        except Exception as error:
            # The other workers continue, so a later batch from this one would be out of order.
            if self._worker.count > 1 and not isinstance(error, StopIteration):
                self._failure = error
            raise

    def close(self) -> None:
        """End the threads and processes of the stream."""
        self._stream.close()

    def state_dict(self) -> State:
        """The state after the last piece that was delivered, in JSON."""
        return Position(
            stream=self._before() if self._used and self._before else self._stream.state_dict(),
            used=self._used,
            pieces=self._pieces,
            worker=self._worker,
            first=self._first,
        ).state_dict()

    def load_state_dict(self, state: Saved) -> None:
        """Continue from a state: this worker's own, or one of the whole stream.

        A list holds the states of all ranks, each of the whole stream.
        """
        states = state if isinstance(state, list | tuple) else [state]
        positions = [Position.of(one) for one in states]
        if len({(position.step, position.used, position.pieces) for position in positions}) != 1:
            raise InvalidState(
                f"the states of {len(positions)} ranks are not of the same piece of the same "
                "batch; use states that were saved after the same one"
            )
        for position in positions:
            self._require_fitting(position)
        position, streams = positions[0], [position.stream for position in positions]
        self._stream.load_state_dict(streams if len(streams) > 1 else streams[0])
        self._step, self._used, self._failure = position.step, 0, None
        while self._used < position.used:
            self._advance()
        is_own = (position.worker, position.pieces) == (self._worker, self._pieces)
        self._first = position.first if is_own else self._number

    @property
    def _number(self) -> int:
        """Pieces that were delivered or skipped."""
        return self._step * self._pieces + self._used

    def _advance(self) -> tuple[Batch, int]:
        if self._used == 0:
            before = self._stream.snapshot() if self._pieces > 1 else None
            self._batch = next(self._stream)
            self._before = before
        piece = self._used
        self._used = (piece + 1) % self._pieces
        self._step += self._used == 0
        return self._batch, piece

    def _require_fitting(self, position: Position) -> None:
        theirs, mine = position.worker, self._worker
        if not position.is_shared and (theirs, position.pieces) != (mine, self._pieces):
            raise InvalidState(
                f"the state is of worker {theirs.index} of {theirs.count} but this is worker "
                f"{mine.index} of {mine.count}; resume with the same number of workers, or give "
                "state=latest_state(saved) to a new dataset"
            )
        if position.used and position.pieces != self._pieces:
            raise InvalidState(
                f"the state follows piece {position.used} of {position.pieces} of a batch but "
                f"batches have {counted(self._pieces, 'piece')} here; use a state after a "
                "whole batch"
            )


def latest_state(saved: object) -> State:
    """The state after the last batch that a loader delivered, valid for any number of workers.

    ``saved`` is what `StatefulDataLoader.state_dict()` or a grain iterator's `get_state()`
    returned, with the states of all workers anywhere in it.
    """
    if isinstance(saved, Mapping) and saved.get("_steps_since_snapshot"):  # torchdata's key
        raise InvalidState(
            f"the loader's snapshot is {saved['_steps_since_snapshot']} batches older than its "
            "last batch; make the loader with snapshot_every_n_steps=1, or resume with the same "
            "number of workers"
        )
    positions = [Position.of(state) for state in _worker_states(saved)]
    if not positions:
        raise InvalidState(
            "there is no state of a quire stream in what was saved; pass the state_dict() of a "
            "StatefulDataLoader, or the get_state() of a grain iterator"
        )
    # Workers take turns, so the furthest one delivered the last batch.
    last = max(positions, key=lambda position: position.number)
    return replace(last, worker=ONLY, first=last.number).state_dict()


def _worker_states(saved: object) -> Iterator[object]:
    if _is_workers(saved):
        yield saved
    elif isinstance(saved, Mapping):
        for value in saved.values():
            yield from _worker_states(value)
    elif isinstance(saved, list | tuple):
        for value in saved:
            yield from _worker_states(value)


def _is_workers(state: object) -> bool:
    return isinstance(state, Mapping) and state.get("format") == FORMAT
