"""Packing a stream through a bounded buffer: the oldest document first, then what fills its row."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Generic

from quire.errors import InvalidLengths, InvalidOption, OversizedDocument
from quire.options import require_integer
from quire.plan.next_row import take_row
from quire.plan.waiting import Key, Waiting
from quire.seals import Seal

_OPTIONS = ("capacity", "buffer_size", "max_documents_per_row", "align")
_FIELDS = {*_OPTIONS, "keys", "spaces"}
_SEAL = Seal(format="quire.online", owner="an online packer", first=3)


class OnlinePacker(Generic[Key]):
    """Rows of whole documents from a stream of lengths, nearly full, without a look at the rest.

    A row leaves when `buffer_size` documents wait *and* they hold at least two rows: of tokens
    or, where `max_documents_per_row` ends rows first, of documents. Every row takes the
    document that has waited longest; keys stand in a row in the order in which they were
    added. What comes out depends on the calls alone.

    >>> packer = OnlinePacker(capacity=10, buffer_size=4)
    >>> [packer.add(key, length) for key, length in zip("abcd", [6, 7, 3, 4])]
    [[], [], [], [['a', 'd']]]
    >>> packer.flush()
    [['b', 'c']]

    **Waiting is bounded.** With D the most documents that a row can hold, the smaller of
    `capacity // align` and `max_documents_per_row`, fewer than W = max(buffer_size, 2 * D)
    documents wait between calls. As the oldest leaves with every row, a document is in one of
    the W rows that follow its `add`, and leaves within W * D further calls of `add`, whatever
    the lengths. (In the mean it waits for as many calls as there are documents waiting.)

    With `align=k` the space of each document in a row is rounded up to a multiple of k.
    """

    def __init__(
        self,
        capacity: int,
        buffer_size: int,
        *,
        max_documents_per_row: int | None = None,
        align: int = 1,
    ) -> None:
        self.capacity = require_integer("capacity", capacity, 1)
        self.buffer_size = require_integer("buffer_size", buffer_size, 1)
        self.align = require_integer("align", align, 1)
        if max_documents_per_row is not None:
            max_documents_per_row = require_integer(
                "max_documents_per_row", max_documents_per_row, 1
            )
        self.max_documents_per_row = max_documents_per_row
        # All arithmetic is in units of `align`; a document takes at least one.
        self._row_space = self.capacity // self.align
        if not self._row_space:
            raise InvalidOption(
                f"align={self.align} leaves no room for a document in a row of capacity "
                f"{self.capacity}; lower align or raise capacity"
            )
        self._row_limit = min(self._row_space, max_documents_per_row or self._row_space)
        self._waiting: Waiting[Key] = Waiting()
        self._num_added = 0

    @property
    def num_waiting(self) -> int:
        """Documents that were added and have not left."""
        return len(self._waiting)

    def add(self, key: Key, length: int) -> list[list[Key]]:
        """The rows that leave, mostly none, as a document joins those that wait."""
        self._append(key, self._space(key, length))
        rows: list[list[Key]] = []
        while self._is_due():
            rows.append(take_row(self._waiting, self._row_space, self._row_limit))
        return rows

    def flush(self) -> list[list[Key]]:
        """Rows of everything that waits; the packer is empty afterwards.

        No later document competes with these, so they are packed in two orders, oldest first and
        largest first, and the one with fewer rows is kept.
        """
        largest_first: Waiting[Key] = Waiting()
        for document in sorted(self._waiting, key=lambda document: -document[2]):
            largest_first.append(document)
        rows, other = self._drain(self._waiting), self._drain(largest_first)
        return other if len(other) < len(rows) else rows

    def state(self) -> dict[str, object]:
        """Everything that decides the rows to come, for JSON; keys must be ints or strings."""
        for _, key, _ in self._waiting:
            _require_json_key(key)
        return _SEAL.sealed(
            {
                **{name: getattr(self, name) for name in _OPTIONS},
                "keys": [key for _, key, _ in self._waiting],
                "spaces": [size * self.align for _, _, size in self._waiting],
            }
        )

    @classmethod
    def from_state(cls, state: Mapping[str, object]) -> OnlinePacker[int | str]:
        """A packer that continues exactly where the one that gave the state stood."""
        body = _SEAL.unsealed(_SEAL.opened(state))
        keys, spaces = _read_documents(body)
        packer: OnlinePacker[int | str] = OnlinePacker(**{n: body[n] for n in _OPTIONS})
        packer.put_back(keys, spaces)
        return packer

    def put_back(self, keys: Sequence[Key], spaces: Sequence[int]) -> None:
        """Let documents wait again that waited in a packer of the same options, in its order."""
        for key, space in zip(keys, spaces, strict=True):
            _require_json_key(key)
            self._append(key, self._space(key, space))
        if self._is_due():
            raise InvalidOption(
                f"the state holds {len(keys)} documents in {sum(spaces)} places, but with "
                f"buffer_size={self.buffer_size} and capacity={self.capacity} a row would have "
                "left before; use a state as OnlinePacker.state() gave it"
            )

    def _is_due(self) -> bool:
        waiting = self._waiting
        return len(waiting) >= self.buffer_size and (
            waiting.total >= 2 * self._row_space or len(waiting) >= 2 * self._row_limit
        )

    def _append(self, key: Key, size: int) -> None:
        self._waiting.append((self._num_added, key, size))
        self._num_added += 1

    def _drain(self, waiting: Waiting[Key]) -> list[list[Key]]:
        rows = []
        while waiting:
            rows.append(take_row(waiting, self._row_space, self._row_limit))
        return rows

    def _space(self, key: Key, length: int) -> int:
        if type(length) is not int:
            length = _require_length(key, length)
        if length < 1:
            raise InvalidLengths(
                f"document {key!r} has length {length} but a length is at least 1; "
                "leave empty documents out"
            )
        size = -(-length // self.align)
        if size > self._row_space:
            raise self._oversized(key, length)
        return size

    def _oversized(self, key: Key, length: int) -> OversizedDocument:
        usable = self._row_space * self.align
        aligned = f" (of capacity {self.capacity} at align={self.align})" if self.align > 1 else ""
        return OversizedDocument(
            f"document {key!r} has {length} tokens but a row holds {usable}{aligned}; "
            "split it before it is added, or raise capacity"
        )


def _require_length(key: object, length: object) -> int:
    try:
        number = operator.index(length)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(length, bool):
        raise InvalidLengths(f"document {key!r} has length {length!r} but a length is an integer")
    return number


def _require_json_key(key: object) -> None:
    # Not isinstance: a bool or an enum is an int, and comes back from JSON as something else.
    if type(key) is not int and type(key) is not str:
        raise InvalidOption(
            f"key {key!r} is a {type(key).__name__} but only int and str come back from JSON "
            "unchanged; add documents under such keys to save a state"
        )


def _read_documents(state: Mapping[str, object]) -> tuple[list[int | str], list[int]]:
    if set(state) != _FIELDS:
        raise InvalidOption(
            f"the packer's state has fields {sorted(map(str, state))} but must have "
            f"{sorted(_FIELDS)}; use a state as OnlinePacker.state() gave it"
        )
    keys, spaces = state["keys"], state["spaces"]
    if not isinstance(keys, list) or not isinstance(spaces, list) or len(keys) != len(spaces):
        raise InvalidOption(
            "keys and spaces in the packer's state must be two lists of one length; "
            "use a state as OnlinePacker.state() gave it"
        )
    return keys, spaces
