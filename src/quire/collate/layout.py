"""Where the tokens of rows stand in a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from quire.boundaries import Boundaries, fitting_length
from quire.boundaries.checks import read_starts
from quire.collate.rows import Ints, Rows
from quire.errors import InvalidRow


def fit(rows: Rows, max_length: int, multiple: int, *, truncation: bool) -> Rows:
    """The rows, each in at most `max_length` places: cut if that is allowed, else refused."""
    needed = places_needed(rows, multiple)
    longest = int(np.argmax(needed))
    if needed[longest] <= max_length:
        return rows
    if not truncation:
        raise InvalidRow(
            f"row {longest} needs {needed[longest]} places but max_length is {max_length}; "
            "cut rows with truncation=True, or raise max_length"
        )
    _require_starts(rows)
    columns = zip(rows.starts, rows.lengths, strict=True)
    return rows.cut([fitting_length(starts, n, max_length, multiple) for starts, n in columns])


def places_needed(rows: Rows, multiple: int) -> list[int]:
    """The places of each row when its fragments are padded to a multiple."""
    if multiple == 1:
        return rows.lengths
    _require_starts(rows)
    columns = zip(rows.starts, rows.lengths, strict=True)
    return [Boundaries.of_rows([starts], [n], multiple=multiple).size for starts, n in columns]


def place(
    rows: Sequence[Ints], boundaries: Boundaries, fill: int, dtype: npt.DTypeLike = np.int64
) -> Ints:
    """`[B, T]`: the values of each row, in order, at the places of its tokens; `fill` elsewhere."""
    placed = np.full(boundaries.shape, fill, dtype=dtype)
    if boundaries.is_dense:  # copying whole rows takes a tenth of the time of scattering tokens
        for target, row in zip(placed, rows, strict=True):
            target[: len(row)] = row
    else:
        placed[boundaries.segment_ids() > 0] = np.concatenate(rows)
    return placed


def _require_starts(rows: Rows) -> None:
    """Raise for bad starts while rows have their numbers, and before a cut could remove them."""
    read_starts(rows.starts, np.array(rows.lengths))
