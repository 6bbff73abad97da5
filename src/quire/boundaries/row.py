"""The boundaries of one row: conversions between `document_starts` and every other form."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quire.boundaries.batch import Boundaries, Ints32
from quire.boundaries.checks import Ints, read_integers, read_starts
from quire.errors import InvalidBoundaries
from quire.printable import counted


def check_starts(starts: npt.ArrayLike, length: int) -> Ints:
    """The starts as an int64 array, if they can be those of a row of this length.

    >>> check_starts([0, 4, 4], length=9)
    Traceback (most recent call last):
    quire.errors.InvalidBoundaries: row 0: document_starts[2] is 4 after 4, but starts increase; \
give each document one start, in order
    """
    return read_starts([starts], read_integers([length], "lengths of rows"))[0]


def lengths_from_starts(starts: npt.ArrayLike, length: int) -> Ints:
    """The number of tokens of each fragment.

    >>> lengths_from_starts([0, 3], length=5)
    array([3, 2])
    """
    return np.diff(check_starts(starts, length), append=length)


def starts_from_lengths(lengths: npt.ArrayLike) -> Ints:
    """The starts of fragments of these lengths; the row's length is their sum.

    >>> starts_from_lengths([50, 30, 20])
    array([ 0, 50, 80])
    """
    sizes = read_integers(lengths, "lengths")
    if sizes.size == 0:
        raise InvalidBoundaries("lengths are empty, but a row holds at least one fragment")
    if sizes.min() < 1:
        raise InvalidBoundaries(
            f"lengths[{int(sizes.argmin())}] is {int(sizes.min())}, but a fragment holds at least "
            "one token; leave empty ones out"
        )
    return np.cumsum(sizes) - sizes


def cu_seqlens(starts: npt.ArrayLike, length: int, width: int | None = None) -> Ints32:
    """The starts and the row's end; padding up to `width` is one more segment.

    >>> cu_seqlens([0, 3], length=5)
    array([0, 3, 5], dtype=int32)
    """
    return Boundaries.of_rows([starts], [length], width).cu_seqlens()


def starts_from_cu_seqlens(bounds: npt.ArrayLike) -> tuple[Ints, int]:
    """The starts and the length of a row without padding.

    >>> starts_from_cu_seqlens([0, 3, 5])
    (array([0, 3]), 5)
    """
    values = read_integers(bounds, "cu_seqlens")
    if values.size < 2:
        raise InvalidBoundaries(
            f"cu_seqlens have {counted(values.size, 'value')}, but a row has a start and an end"
        )
    return check_starts(values[:-1], int(values[-1])), int(values[-1])


def padded_cu_seqlens(starts: npt.ArrayLike, length: int, multiple: int) -> Ints32:
    """The starts and the end of a row in which every fragment is padded to a multiple.

    With `cu_seqlens` it gives the position of every token; by itself it cannot be converted back.

    >>> padded_cu_seqlens([0, 3], length=5, multiple=4)
    array([0, 4, 8], dtype=int32)
    """
    return Boundaries.of_rows([starts], [length], multiple=multiple).padded_cu_seqlens()


def segment_ids(starts: npt.ArrayLike, length: int, width: int | None = None) -> Ints32:
    """1..k for the tokens of each fragment, 0 on padding up to `width`.

    >>> segment_ids([0, 3], length=5, width=7)
    array([1, 1, 1, 2, 2, 0, 0], dtype=int32)
    """
    return Boundaries.of_rows([starts], [length], width).segment_ids().ravel()


def starts_from_segment_ids(segments: npt.ArrayLike) -> tuple[Ints, int]:
    """The starts and the length of a row; zeros at its right end are padding.

    >>> starts_from_segment_ids([1, 1, 1, 2, 2, 0, 0])
    (array([0, 3]), 5)
    """
    numbers = read_integers(segments, "segment_ids")
    length = int(np.count_nonzero(numbers))
    if length == 0:
        raise InvalidBoundaries(
            "segment_ids contain only padding, but a row has at least one token"
        )
    steps = np.diff(numbers[:length], prepend=0)
    wrong = np.flatnonzero((steps < 0) | (steps > 1) | (numbers[:length] == 0))
    if wrong.size:
        raise InvalidBoundaries(
            f"segment_ids[{wrong[0]}] is {numbers[wrong[0]]}, but they count 1..k from left to "
            "right and are 0 on padding, at the right end only"
        )
    return np.flatnonzero(steps), length


def seq_idx(starts: npt.ArrayLike, length: int, width: int | None = None) -> Ints32:
    """0..k-1 for the tokens of each fragment, k on padding up to `width`.

    >>> seq_idx([0, 3], length=5, width=7)
    array([0, 0, 0, 1, 1, 2, 2], dtype=int32)
    """
    return Boundaries.of_rows([starts], [length], width).seq_idx().ravel()


def starts_from_seq_idx(index: npt.ArrayLike, length: int) -> Ints:
    """The starts of a row with this many tokens; the rest is padding.

    >>> starts_from_seq_idx([0, 0, 0, 1, 1, 2, 2], length=5)
    array([0, 3])
    """
    values = _tokens_of(index, "seq_idx", length)
    steps = np.diff(values, prepend=-1)
    wrong = np.flatnonzero((steps < 0) | (steps > 1) | (values < 0))
    if wrong.size:
        raise InvalidBoundaries(
            f"seq_idx[{wrong[0]}] is {values[wrong[0]]}, but it counts 0..k-1 from left to right"
        )
    return np.flatnonzero(steps)


def position_ids(starts: npt.ArrayLike, length: int, width: int | None = None) -> Ints:
    """Token positions that restart at zero at every document start, and on padding.

    >>> position_ids([0, 3], length=5, width=7)
    array([0, 1, 2, 0, 1, 0, 1])
    """
    return Boundaries.of_rows([starts], [length], width).position_ids().ravel()


def starts_from_position_ids(positions: npt.ArrayLike, length: int) -> Ints:
    """The starts of a row with this many tokens; the rest is padding.

    >>> starts_from_position_ids([0, 1, 2, 0, 1, 0, 1], length=5)
    array([0, 3])
    """
    values = _tokens_of(positions, "position_ids", length)
    wrong = np.flatnonzero((values != 0) & (np.diff(values, prepend=-1) != 1))
    if wrong.size:
        raise InvalidBoundaries(
            f"position_ids[{wrong[0]}] is {values[wrong[0]]}, but each is 0 or one more than the "
            "one before it"
        )
    return np.flatnonzero(values == 0)


def starts_from_tokens(tokens: npt.ArrayLike, token_id: int, *, ends: bool = True) -> Ints:
    """The starts of a row without boundaries: after each `token_id`, or at each if not `ends`.

    Leave padding out: PAD may have the same id.

    >>> starts_from_tokens([5, 6, 2, 7, 2], token_id=2)
    array([0, 3])
    >>> starts_from_tokens([1, 5, 6, 1, 7], token_id=1, ends=False)
    array([0, 3])
    """
    row = read_integers(tokens, "tokens")
    if row.size == 0:
        raise InvalidBoundaries("a row without tokens has no starts; leave empty rows out")
    return Boundaries.of_tokens(row[None], token_id, ends=ends).starts


def fitting_length(starts: npt.ArrayLike, length: int, width: int, multiple: int = 1) -> int:
    """The number of leading tokens of the row that fit into `width` positions.

    >>> fitting_length([0, 3], length=9, width=8, multiple=4)
    7
    """
    boundaries = Boundaries.of_rows([starts], [length], multiple=multiple)
    tokens = boundaries.numbers > 0
    room = np.clip(width - boundaries.starts[tokens], 0, boundaries.lengths[tokens])
    return int(room.sum())


def _tokens_of(values: npt.ArrayLike, name: str, length: int) -> Ints:
    array = read_integers(values, name)
    if not 1 <= length <= array.size:
        raise InvalidBoundaries(
            f"{name} have {counted(array.size, 'value')}, but the row's length is {length}; "
            "it has at least one token, and one value for each"
        )
    return array[:length]
