"""The first key that each token attends to; every mask is made from it."""

from __future__ import annotations

from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidBoundaries, InvalidOption
from quire.options import is_integer

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


def first_visible(segment_ids: npt.ArrayLike, window: int | None = None) -> Ints:
    """The index of the first key that each token attends to, `[B, T]`; the last is itself.

    >>> first_visible([[1, 1, 1, 2, 2, 0]])
    array([[0, 0, 0, 3, 3, 5]])
    >>> first_visible([[1, 1, 1, 2, 2, 0]], window=2)
    array([[0, 0, 1, 3, 3, 5]])
    """
    starts = fragment_starts(segment_ids)
    if window is None:
        return starts
    check_window(window)
    oldest = np.arange(starts.shape[1]) - (window - 1)
    return np.maximum(starts, oldest)


def fragment_starts(segment_ids: npt.ArrayLike) -> Ints:
    """The index at which each token's own fragment (or stretch of padding) starts, `[B, T]`."""
    opens = fragment_opens(segment_ids)
    starts = np.where(opens, np.arange(opens.shape[1]), 0)
    return cast(Ints, np.maximum.accumulate(starts, axis=1))


def fragment_opens(segment_ids: npt.ArrayLike) -> Bools:
    """Where a fragment or a run of padding starts, `[B, T]`.

    >>> fragment_opens([[1, 1, 2, 0, 0]])
    array([[ True, False,  True,  True, False]])
    """
    segments = _integers(segment_ids)
    opens = np.ones(segments.shape, dtype=np.bool_)
    opens[:, 1:] = segments[:, 1:] != segments[:, :-1]
    _check_order(segments, opens)
    return opens


def check_window(window: int) -> None:
    """Raise unless every token attends at least to itself."""
    if not is_integer(window) or window < 1:
        raise InvalidOption(
            f"window={window!r}, but a token attends at least to itself; pass an int >= 1, or None"
        )


def _integers(segment_ids: npt.ArrayLike) -> npt.NDArray[np.integer]:
    segments = np.asarray(segment_ids)
    if segments.ndim != 2 or segments.shape[1] == 0:
        raise InvalidBoundaries(
            f"segment_ids have shape {segments.shape}; a mask needs [rows, tokens] with tokens >= 1"
        )
    if segments.dtype.kind not in "iu":
        raise InvalidBoundaries(f"segment_ids have dtype {segments.dtype}; they must be integers")
    return segments


def _check_order(segments: npt.NDArray[np.integer], opens: Bools) -> None:
    """Raise if a segment is negative or occurs twice: the two runs would be one document to a mask
    that compares numbers, and two documents to a kernel that takes bounds."""
    highest_before = np.zeros(segments.shape, dtype=np.int64)
    highest_before[:, 1:] = np.maximum.accumulate(segments, axis=1)[:, :-1]
    wrong = (opens & (segments != 0) & (segments <= highest_before)) | (segments < 0)
    if wrong.any():
        row, place = (int(index) for index in np.argwhere(wrong)[0])
        raise InvalidBoundaries(
            f"row {row}: segment {int(segments[row, place])} at token {place} is out of order; "
            "number segments 1..k from left to right, each in one run, with 0 for padding"
        )
