"""Validation of boundaries; invalid ones are refused, never repaired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidBoundaries

Ints: TypeAlias = npt.NDArray[np.int64]


def read_integers(values: npt.ArrayLike, name: str) -> Ints:
    """The values as a flat int64 array, if they are integers."""
    try:
        array = np.asarray(values)
    except Exception as error:  # ragged lists, tensors on a device: each library has its own kind
        raise InvalidBoundaries(f"{name} cannot be read as integers: {error}") from error
    if array.ndim != 1:
        raise InvalidBoundaries(f"{name} have {array.ndim} dimensions, but a row has one list")
    if array.size and array.dtype.kind not in "iu":
        raise InvalidBoundaries(
            f"{name} have dtype {array.dtype}, the first is {array[0]!r}, but must be integers; "
            "cast them yourself, so that nothing is truncated silently"
        )
    return np.asarray(array, np.int64)


def read_starts(starts: Sequence[npt.ArrayLike], lengths: Ints) -> tuple[Ints, Ints]:
    """The starts of all rows one after another, and the number in each row, if they are valid."""
    if len(starts) != len(lengths) or len(starts) == 0:
        raise InvalidBoundaries(
            f"{len(starts)} lists of document_starts for {len(lengths)} rows; "
            "give one list per row, and at least one row"
        )
    rows = [read_integers(row, f"row {i}: document_starts") for i, row in enumerate(starts)]
    counts = np.array([len(row) for row in rows])
    flat = np.concatenate(rows)
    _require_tokens(lengths, counts)
    _require_order(flat, counts, lengths)
    return flat, counts


def _require_tokens(lengths: Ints, counts: Ints) -> None:
    if lengths.min() < 1:
        raise InvalidBoundaries(
            f"row {int(lengths.argmin())} has {int(lengths.min())} tokens, but a row holds at "
            "least one; leave empty rows out"
        )
    if counts.min() < 1:
        raise InvalidBoundaries(
            f"row {int(counts.argmin())}: document_starts are empty, but the first document of a "
            "row starts at 0; a row of one document has [0]"
        )


def _require_order(flat: Ints, counts: Ints, lengths: Ints) -> None:
    """Raise at the first start that is not above the one before it, or not inside its row."""
    first = counts.cumsum() - counts
    wrong = flat >= lengths.repeat(counts)
    wrong[1:] |= flat[1:] <= flat[:-1]
    wrong[first] = flat[first] != 0
    if wrong.any():
        place = int(wrong.argmax())
        row = int(first.searchsorted(place, side="right")) - 1
        raise _misplaced(flat[first[row] :].tolist(), place - int(first[row]), row, lengths)


def _misplaced(starts: list[int], place: int, row: int, lengths: Ints) -> InvalidBoundaries:
    if place == 0:
        return InvalidBoundaries(
            f"row {row}: document_starts begin with {starts[0]}, but the first document of a row "
            "starts at 0; a continuation is a document of its own here"
        )
    name = f"row {row}: document_starts[{place}] is {starts[place]}"
    if starts[place] <= starts[place - 1]:
        return InvalidBoundaries(
            f"{name} after {starts[place - 1]}, but starts increase; "
            "give each document one start, in order"
        )
    return InvalidBoundaries(
        f"{name}, but the row has {lengths[row]} tokens; starts lie inside the row"
    )
