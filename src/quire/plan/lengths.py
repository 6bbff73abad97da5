"""Integer lengths from lists, NumPy, Arrow or torch, validated once on entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidLengths

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

IntArray: TypeAlias = npt.NDArray[np.integer]
BoolArray: TypeAlias = npt.NDArray[np.bool]
FloatArray: TypeAlias = npt.NDArray[np.float64]
Lengths: TypeAlias = "Sequence[int] | IntArray | pa.Array | pa.ChunkedArray | torch.Tensor"


MOST_TOKENS = 2**62
"""Keeps all sums of a plan within 64 bits."""


def as_lengths(lengths: Lengths) -> IntArray:
    """A private, read-only integer array of the lengths, in the narrowest unsigned type.

    Narrow types make planning fast: NumPy sorts 16-bit integers by radix.

    >>> as_lengths([5, 0, 7])
    array([5, 0, 7], dtype=uint16)
    """
    array = _integers(lengths)
    if array.ndim != 1:
        raise InvalidLengths(
            f"lengths have {array.ndim} dimensions but one number per document is needed; "
            "pass a flat list or array"
        )
    compact = array.astype(_narrowest(array))  # always a copy
    compact.setflags(write=False)
    return compact


def narrowest_signed(largest: int) -> type[np.int32 | np.int64]:
    """The integer type for plan arrays: 32 bits if they hold the largest value."""
    return np.int32 if largest <= np.iinfo(np.int32).max else np.int64


def _integers(lengths: Lengths) -> IntArray:
    null_count = getattr(lengths, "null_count", 0)
    if null_count:
        first = next(i for i, value in enumerate(lengths) if not value.is_valid)
        raise InvalidLengths(
            f"lengths hold {null_count} nulls, the first at document {first}; "
            "fill or filter them before planning"
        )
    try:
        array = np.asarray(lengths)
    except Exception as error:  # torch, jax and numpy raise different types
        raise InvalidLengths(
            f"lengths of type {type(lengths).__name__} cannot be read as integers: {error}; "
            "pass a list, or a numpy, Arrow or CPU torch array of integers"
        ) from error
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, dtype=np.uint16)
    if array.dtype.kind not in "iu":
        raise _not_integers(array)
    return array


def _narrowest(array: IntArray) -> type[np.unsignedinteger]:
    if array.size == 0:
        return np.uint16
    if array.dtype.kind == "i" and (smallest := int(array.min())) < 0:
        raise InvalidLengths(
            f"document {int(array.argmin())} has length {smallest} but lengths start at 0; "
            "check how the lengths were computed"
        )
    largest = int(array.max())
    if largest > np.iinfo(np.int64).max:
        raise InvalidLengths(
            f"document {int(array.argmax())} has length {largest} but the longest possible is "
            f"{np.iinfo(np.int64).max}; check how the lengths were computed"
        )
    narrowest = next(t for t in (np.uint16, np.uint32, np.uint64) if largest <= np.iinfo(t).max)
    if narrowest is np.uint64 and (total := float(array.sum(dtype=np.float64))) > MOST_TOKENS:
        raise InvalidLengths(
            f"the lengths sum to {total:.3g} tokens but at most {MOST_TOKENS:.3g} can be planned; "
            "check how the lengths were computed"
        )
    return narrowest


def _not_integers(array: npt.NDArray[np.generic]) -> InvalidLengths:
    for index, value in enumerate(array.ravel().tolist()):
        if not isinstance(value, int) or isinstance(value, bool):
            return InvalidLengths(
                f"document {index} has length {value!r} but a length is an integer; "
                "round or cast the lengths yourself, so nothing is cut silently"
            )
        if not 0 <= value <= np.iinfo(np.int64).max:
            return InvalidLengths(
                f"document {index} has length {value} but lengths are from 0 to "
                f"{np.iinfo(np.int64).max}; check how the lengths were computed"
            )
    return InvalidLengths(f"lengths have dtype {array.dtype} but integers are needed")
