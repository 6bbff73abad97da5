"""Packed rows as they are looked at, checked one by one."""

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
    """Whether the row says where its documents start; without, it is shown as one."""

    @property
    def lengths(self) -> Ints:
        """Tokens of each fragment."""
        return np.diff(self.starts, append=len(self.input_ids))


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Rows in order, with what turns their tokens into text, if that is known."""

    kind: str
    rows: Iterable[Mapping[str, Any]]
    decode: Decode | None = None
    num_rows: int | None = None
    max_length: int | None = None
    """Places in a row, where that is known."""

    def views(self, start: int = 0, count: int | None = None) -> Iterator[RowView]:
        """Rows from ``start`` on."""
        stop = None if count is None else start + count
        for number, row in islice(enumerate(self.rows), start, stop):
            yield _view(number, row)


def _view(number: int, row: Mapping[str, Any]) -> RowView:
    if not isinstance(row, Mapping):
        raise InvalidOption(
            f"row {number} is a {type(row).__name__} but a row maps names to lists; this holds no "
            "packed rows"
        )
    if "input_ids" not in row:
        raise InvalidOption(
            f"row {number} has {', '.join(map(str, row))[:200]} but no input_ids: this holds no "
            "packed rows; pack it first (quire pack), or name what was packed"
        )
    ids = _tokens(number, row["input_ids"])
    features = tuple(str(name) for name in row)
    if row.get("document_starts") is None:
        return RowView(
            number=number,
            input_ids=ids,
            starts=np.zeros(1, np.int64),
            features=features,
            has_starts=False,
        )
    starts = _starts(number, row["document_starts"], len(ids))
    return RowView(number=number, input_ids=ids, starts=starts, features=features)


def _tokens(number: int, given: Any) -> Ints:  # noqa: ANN401 - whatever stood in a file
    """The tokens of a row, if they are a list of integers."""
    try:
        ids = np.asarray(given)
    except (ValueError, TypeError, OverflowError):
        ids = np.zeros(0, object)  # a ragged list
    if ids.ndim != 1 or not (ids.dtype.kind in "iu" or (isinstance(given, list) and not given)):
        raise InvalidOption(
            f"row {number}: input_ids are {given!r:.60} but must be a list of integers; "
            "this holds no packed rows, or is damaged"
        )
    return ids.astype(np.int64)


def _starts(number: int, given: Any, length: int) -> Ints:  # noqa: ANN401 - as above
    try:
        return check_starts(given, length)
    except InvalidBoundaries as error:
        # The check knows of one row alone, and calls it 0.
        said = str(error).replace("row 0", f"row {number}", 1)
        raise InvalidBoundaries(said) from None
