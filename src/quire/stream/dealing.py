"""A stream's batches dealt to readers: all of them to one, or every N-th to each of N.

Loaders ask their N workers in turn. Worker i reads the whole stream and gives the batches i, i + N,
i + 2N, …; so what the loader gives is the stream itself, whatever N is.

A batch may be dealt in pieces, its microbatches; the state stands behind the last piece.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from quire.errors import InvalidState
from quire.stream.batch import Batch
from quire.stream.pipeline import Stream
from quire.stream.places import WHOLE, Part, Place
from quire.stream.state import State

Saved: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class DealtBatches:
    """An iterator of (batch, number of the piece in it), with a state behind each."""

    def __init__(
        self,
        open_anew: Callable[[], Stream],
        *,
        part: Part = WHOLE,
        pieces: int = 1,
        start: Saved | None = None,
    ) -> None:
        self._stream = open_anew()
        self._part, self._pieces = part, pieces
        self._step, self._used, self._first = 0, 0, 0
        self._before: Callable[[], State] | None = None
        self._failure: Exception | None = None
        if start is not None:
            self.set_state(start)

    def __iter__(self) -> DealtBatches:
        return self

    def __next__(self) -> tuple[Batch, int]:
        if self._failure is not None:
            raise self._failure
        try:
            while not self._part.holds(self._number - self._first):
                self._advance()
            return self._advance()
        except Exception as error:
            # The other parts go on, so whatever came later from this one would be out of order.
            if self._part.count > 1 and not isinstance(error, StopIteration):
                self._failure = error
            raise

    def close(self) -> None:
        """End the threads and processes of the stream."""
        self._stream.close()

    def get_state(self) -> State:
        """The state behind the last piece that was given, in JSON."""
        return Place(
            stream=self._before() if self._used and self._before else self._stream.get_state(),
            used=self._used,
            pieces=self._pieces,
            part=self._part,
            first=self._first,
        ).to_json()

    def set_state(self, state: Saved) -> None:
        """Go on behind a state: this part's own, or one of the whole stream, which parts share.

        A list holds the states of all ranks, each of the whole stream.
        """
        places = [Place.of(one) for one in (state if isinstance(state, list | tuple) else [state])]
        if len({(place.step, place.used, place.pieces) for place in places}) != 1:
            raise InvalidState(
                f"{len(places)} ranks' states do not stand behind one piece of one batch; use "
                "states that were saved behind the same one"
            )
        for place in places:
            self._require_fitting(place)
        place, ranks = places[0], [place.stream for place in places]
        self._stream.set_state(ranks if len(ranks) > 1 else ranks[0])
        self._step, self._used, self._failure = place.step, 0, None
        while self._used < place.used:
            self._advance()
        is_own = (place.part, place.pieces) == (self._part, self._pieces)
        self._first = place.first if is_own else self._number

    @property
    def _number(self) -> int:
        """Pieces that were given or passed over."""
        return self._step * self._pieces + self._used

    def _advance(self) -> tuple[Batch, int]:
        if self._used == 0:
            before = self._stream.freeze() if self._pieces > 1 else None
            self._batch = next(self._stream)
            self._before = before
        piece = self._used
        self._used = (piece + 1) % self._pieces
        self._step += self._used == 0
        return self._batch, piece

    def _require_fitting(self, place: Place) -> None:
        if not place.is_shared and (place.part, place.pieces) != (self._part, self._pieces):
            raise InvalidState(
                f"the state is of worker {place.part.index} of {place.part.count} but this is "
                f"worker {self._part.index} of {self._part.count}; resume with as many workers, "
                "or give state=latest_state(saved) to a new dataset"
            )
        if place.used and place.pieces != self._pieces:
            raise InvalidState(
                f"the state stands behind piece {place.used} of {place.pieces} of a batch but "
                f"batches come in {self._pieces} pieces here; use a state behind a whole batch"
            )
