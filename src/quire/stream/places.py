"""Where a reader of a stream stands: its state, and the latest of many.

A reader is dealt a part of a stream's batches, in pieces (see `quire.stream.dealing`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from quire.errors import InvalidState
from quire.stream.state import State, read_count, read_counts, read_fields

FORMAT = "quire.stream.dealt"
_FIELDS = ("format", "part", "pieces", "first", "used", "stream", "checksum")


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Which pieces a reader gives: every ``count``-th, from the ``index``-th on."""

    index: int = 0
    count: int = 1

    def holds(self, number: int) -> bool:
        """Whether the piece of this number is one of them.

        >>> [number for number in range(8) if Part(index=1, count=3).holds(number)]
        [1, 4, 7]
        """
        return number % self.count == self.index


WHOLE = Part()


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The place behind a piece of a batch."""

    stream: Mapping[str, Any]
    """The state of the stream before that piece's batch, or behind the last piece of one."""
    used: int = 0
    """Pieces of the batch that follows ``stream`` which are behind this place."""
    pieces: int = 1
    """Pieces of every batch."""
    part: Part = WHOLE
    first: int = 0
    """The number of the piece from which on pieces were dealt in turn."""

    @classmethod
    def of(cls, state: object) -> Place:
        """The place that a reader's state tells of, or a `Stream`'s own."""
        if isinstance(state, Mapping) and not _is_dealt(state):
            return cls(stream=state)
        fields = read_fields("a reader's state", state, _FIELDS)
        index, count = read_counts("part", fields["part"], 2)
        pieces = read_count("pieces", fields["pieces"])
        place = cls(
            stream=fields["stream"],
            used=read_count("used", fields["used"], most=max(pieces - 1, 0)),
            pieces=pieces,
            part=Part(index=index, count=count),
            first=read_count("first", fields["first"]),
        )
        if index >= count or pieces < 1 or place.first > place.number:
            raise InvalidState(
                f"the state is of part {index} of {count}, from piece {place.first} to "
                f"{place.number}, with {pieces} pieces a batch, which cannot be"
            )
        if fields["checksum"] != place._checksum():
            raise InvalidState(
                f"the reader's state has checksum {fields['checksum']!r} but its content "
                f"{place._checksum()!r}: it was damaged or changed; use an earlier state"
            )
        return place

    def to_json(self) -> State:
        """The state that tells of this place."""
        return {
            "format": FORMAT,
            "part": [self.part.index, self.part.count],
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
        """Pieces behind this place, of the whole stream."""
        return self.step * self.pieces + self.used

    @property
    def is_shared(self) -> bool:
        """Whether all parts may go on from here: it is of the whole stream, or where parts begin.

        Other places are behind the pieces of one part, and say nothing of the others.
        """
        return self.part == WHOLE or self.number == self.first

    def _checksum(self) -> str:
        # The stream's state has a checksum of its own, which stands for it here.
        whose = self.stream.get("checksum") if isinstance(self.stream, Mapping) else None
        told = [self.part.index, self.part.count, self.pieces, self.first, self.used, whose]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def latest_state(saved: object) -> State:
    """The state behind the last batch that a loader gave, good for any number of workers.

    ``saved`` is what `StatefulDataLoader.state_dict()` or a grain iterator's `get_state()` gave,
    with the states of all workers anywhere in it.
    """
    if isinstance(saved, Mapping) and saved.get("_steps_since_snapshot"):  # torchdata's word
        raise InvalidState(
            f"the loader's snapshot is {saved['_steps_since_snapshot']} batches older than what it "
            "gave; make the loader with snapshot_every_n_steps=1, or resume with as many workers"
        )
    places = [Place.of(state) for state in _dealt_states(saved)]
    if not places:
        raise InvalidState(
            "there is no state of a quire stream in what was saved; pass the state_dict() of a "
            "StatefulDataLoader, or the get_state() of a grain iterator"
        )
    # Workers are asked in turn, so the one that is furthest gave the last batch.
    last = max(places, key=lambda place: place.number)
    return replace(last, part=WHOLE, first=last.number).to_json()


def _dealt_states(saved: object) -> Iterator[object]:
    if _is_dealt(saved):
        yield saved
    elif isinstance(saved, Mapping):
        for value in saved.values():
            yield from _dealt_states(value)
    elif isinstance(saved, list | tuple):
        for value in saved:
            yield from _dealt_states(value)


def _is_dealt(state: object) -> bool:
    return isinstance(state, Mapping) and state.get("format") == FORMAT
