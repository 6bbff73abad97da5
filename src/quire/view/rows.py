"""Packed rows to show, checked one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from quire.boundaries import check_starts
from quire.errors import InvalidBoundaries, InvalidOption

Ints = npt.NDArray[np.int64]
Decode = Callable[[list[int]], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowView:
    """One packed row."""

    number: int
    input_ids: Ints
    starts: Ints
    features: tuple[str, ...]
    has_starts: bool = True
    """Whether the row has document_starts; without, it is shown as one document."""

    @property
    def lengths(self) -> Ints:
        """Tokens of each fragment."""
        return np.diff(self.starts, append=len(self.input_ids))


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Rows in order, with the decoder of their tokens, if that is known."""

    kind: str
    rows: Iterable[Mapping[str, Any]]
    decode: Decode | None = None
    num_rows: int | None = None
    max_length: int | None = None
    """The most tokens in a row, if that is known."""

    def views(self, start: int = 0, count: int | None = None) -> Iterator[RowView]:
        """Rows from ``start`` on."""
        stop = None if count is None else start + count
        for number, row in islice(enumerate(self.rows), start, stop):
            yield _view(number, row)


def _view(number: int, row: Mapping[str, Any]) -> RowView:
    if not isinstance(row, Mapping):
        raise InvalidOption(
            f"row {number} is a {type(row).__name__} but a row maps names to lists; these are not "
            "packed rows"
        )
    if "input_ids" not in row:
        raise InvalidOption(
            f"row {number} has {', '.join(map(str, row))[:200]} but no input_ids: these are not "
            "packed rows; pack them first (quire pack), or name what was packed"
        )
    ids = _tokens(number, row["input_ids"])
    given = row.get("document_starts")
    return RowView(
        number=number,
        input_ids=ids,
        starts=np.zeros(1, np.int64) if given is None else _starts(number, given, len(ids)),
        features=tuple(str(name) for name in row),
        has_starts=given is not None,
    )


def _tokens(number: int, given: Any) -> Ints:  # noqa: ANN401 - whatever a file holds
    """The tokens of a row, if they are a list of integers."""
    try:
        ids = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        ids = np.zeros(0, object)  # a ragged list
    if ids.ndim != 1 or not (ids.dtype.kind in "iu" or (isinstance(given, list) and not given)):
        raise InvalidOption(
            f"row {number}: input_ids are {given!r:.60} but must be a list of integers; "
            "these are not packed rows, or they are damaged"
        )
    return ids.astype(np.int64)


def _starts(number: int, given: Any, length: int) -> Ints:  # noqa: ANN401 - as above
    try:
        return check_starts(given, length)
    except InvalidBoundaries as error:
        # The check sees only this row, and calls it 0.
        message = str(error).replace("row 0", f"row {number}", 1)
        raise InvalidBoundaries(message) from None
