"""Packing a stream through a bounded buffer: the oldest document, then what fills its row best."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Generic

from quire.errors import InvalidLengths, InvalidOption, InvalidState, OversizedDocument
from quire.options import require_integer
from quire.plan.buffer import Buffer, Key, take_row
from quire.printable import counted
from quire.seals import Seal, renamed

_OPTIONS = ("max_length", "buffer_size", "max_documents_per_row", "align")
_FIELDS = {*_OPTIONS, "keys", "spaces"}
_REMEDY = "pass a state as OnlinePacker.state_dict() returned it"
_SEAL = Seal(
    format="quire.online",
    owner="an online packer",
    migrations={2: partial(renamed, {"capacity": "max_length"})},
    first=3,
)


class OnlinePacker(Generic[Key]):
    """Nearly full rows of whole documents from a stream of lengths, without looking ahead.

    A row leaves when at least `buffer_size` documents are buffered *and* they fill at least two
    rows: with tokens or, where `max_documents_per_row` is reached first, with documents. Every row
    takes the oldest document; the keys of a row are in the order in which they were added. The
    rows depend only on the calls.

    >>> packer = OnlinePacker(max_length=10, buffer_size=4)
    >>> [packer.add(key, length) for key, length in zip("abcd", [6, 7, 3, 4])]
    [[], [], [], [['a', 'd']]]
    >>> packer.flush()
    [['b', 'c']]

    **Waiting is bounded.** Let D be the most documents that a row can hold, the smaller of
    `max_length // align` and `max_documents_per_row`. Between calls, fewer than
    W = max(buffer_size, 2 * D) documents are buffered. As the oldest leaves with every row, a
    document is in one of the W rows after its `add`, and leaves within W * D further calls of
    `add`, whatever the lengths. (On average it waits for as many calls as documents are buffered.)

    With `align=k` the space of each document in a row is rounded up to a multiple of k.
    """

    def __init__(
        self,
        max_length: int,
        buffer_size: int,
        *,
        max_documents_per_row: int | None = None,
        align: int = 1,
    ) -> None:
        self.max_length = require_integer("max_length", max_length, 1)
        self.buffer_size = require_integer("buffer_size", buffer_size, 1)
        self.align = require_integer("align", align, 1)
        if max_documents_per_row is not None:
            max_documents_per_row = require_integer(
                "max_documents_per_row", max_documents_per_row, 1
            )
        self.max_documents_per_row = max_documents_per_row
        # Sizes are in units of `align`; a document takes at least one.
        self._row_size = self.max_length // self.align
        if not self._row_size:
            raise InvalidOption(
                f"align={self.align} is more than the {self.max_length} tokens of a row; lower "
                "align or raise max_length"
            )
        self._row_limit = min(self._row_size, max_documents_per_row or self._row_size)
        self._buffer: Buffer[Key] = Buffer()
        self._num_added = 0

    def __repr__(self) -> str:
        held = counted(len(self._buffer), "document")
        return (
            f"OnlinePacker(max_length={self.max_length}, buffer_size={self.buffer_size}, "
            f"{held} held)"
        )

    @property
    def num_waiting(self) -> int:
        """Documents that were added and have not left yet."""
        return len(self._buffer)

    def add(self, key: Key, length: int) -> list[list[Key]]:
        """Add a document, and return the rows that leave: mostly none."""
        self._append(key, self._size(key, length))
        rows: list[list[Key]] = []
        while self._is_due():
            rows.append(take_row(self._buffer, self._row_size, self._row_limit))
        return rows

    def flush(self) -> list[list[Key]]:
        """Empty the buffer, and return its documents in rows.

        No later document competes with these, so they are packed in two orders, oldest first and
        largest first, and the result with fewer rows is returned.
        """
        largest_first: Buffer[Key] = Buffer()
        for document in sorted(self._buffer, key=lambda document: -document[2]):
            largest_first.append(document)
        rows, other = self._drain(self._buffer), self._drain(largest_first)
        return other if len(other) < len(rows) else rows

    def state_dict(self) -> dict[str, object]:
        """Everything that decides the rows to come, as JSON; keys must be ints or strings."""
        for _, key, _ in self._buffer:
            _require_json_key(key)
        return _SEAL.sealed(
            {
                **{name: getattr(self, name) for name in _OPTIONS},
                "keys": [key for _, key, _ in self._buffer],
                "spaces": [size * self.align for _, _, size in self._buffer],
            }
        )

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Continue exactly where the packer that gave the state was; its options must be equal.

        >>> packer, other = OnlinePacker(10, buffer_size=4), OnlinePacker(10, buffer_size=4)
        >>> packer.add("a", 6)
        []
        >>> other.load_state_dict(packer.state_dict())
        >>> other.flush()
        [['a']]
        """
        body = _SEAL.unsealed(_SEAL.opened(state))
        keys, sizes = _read_documents(body)
        for name in _OPTIONS:
            if body[name] != getattr(self, name):
                raise InvalidState(
                    f"the state was saved with {name}={body[name]} but this packer has "
                    f"{name}={getattr(self, name)}; create the packer with the saved options"
                )
        self.refill(keys, sizes)  # type: ignore[arg-type]

    def refill(self, keys: Sequence[Key], lengths: Sequence[int]) -> None:
        """Replace the buffer by documents that a packer with the same options had buffered."""
        restored = type(self)(**{name: getattr(self, name) for name in _OPTIONS})
        for key, length in zip(keys, lengths, strict=True):
            _require_json_key(key)
            restored._append(key, restored._size(key, length))
        if restored._is_due():
            raise InvalidOption(
                f"the state holds {len(keys)} documents with {sum(lengths)} tokens, but with "
                f"buffer_size={self.buffer_size} and max_length={self.max_length} a row would have "
                f"left before; {_REMEDY}"
            )
        self._buffer, self._num_added = restored._buffer, restored._num_added

    def _is_due(self) -> bool:
        buffer = self._buffer
        return len(buffer) >= self.buffer_size and (
            buffer.total >= 2 * self._row_size or len(buffer) >= 2 * self._row_limit
        )

    def _append(self, key: Key, size: int) -> None:
        self._buffer.append((self._num_added, key, size))
        self._num_added += 1

    def _drain(self, buffer: Buffer[Key]) -> list[list[Key]]:
        rows = []
        while buffer:
            rows.append(take_row(buffer, self._row_size, self._row_limit))
        return rows

    def _size(self, key: Key, length: int) -> int:
        if type(length) is not int:
            length = _require_length(key, length)
        if length < 1:
            raise InvalidLengths(
                f"document {key!r} has length {length} but a length is at least 1; "
                "leave empty documents out"
            )
        size = -(-length // self.align)
        if size > self._row_size:
            raise self._oversized(key, length)
        return size

    def _oversized(self, key: Key, length: int) -> OversizedDocument:
        usable = self._row_size * self.align
        aligned = (
            f" (of max_length {self.max_length} at align={self.align})" if self.align > 1 else ""
        )
        return OversizedDocument(
            f"document {key!r} has {length} tokens but a row holds {usable}{aligned}; "
            "split it before you add it, or raise max_length"
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
    # Not isinstance: a bool or an enum is an int too, but JSON returns something else.
    if type(key) is not int and type(key) is not str:
        raise InvalidOption(
            f"key {key!r} has type {type(key).__name__} but only int and str survive JSON "
            "unchanged; use such keys if you save states"
        )


def _read_documents(state: Mapping[str, object]) -> tuple[list[int | str], list[int]]:
    if set(state) != _FIELDS:
        raise InvalidOption(
            f"the packer's state has fields {sorted(map(str, state))} but must have "
            f"{sorted(_FIELDS)}; {_REMEDY}"
        )
    keys, spaces = state["keys"], state["spaces"]
    if not isinstance(keys, list) or not isinstance(spaces, list) or len(keys) != len(spaces):
        raise InvalidOption(
            f"keys and spaces in the packer's state must be two lists of the same length; {_REMEDY}"
        )
    return keys, spaces
