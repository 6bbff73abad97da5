"""Operations on NumPy arrays and torch tensors alike; torch is imported only if it is in use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from quire.errors import InvalidOption
from quire.plan.lengths import IntArray

Array: TypeAlias = Any
"""A NumPy array or a torch tensor."""


def as_array(values: Any) -> Array:  # noqa: ANN401
    """An array or tensor as it is, anything else as a NumPy array."""
    if hasattr(values, "shape"):
        return values
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidOption(f"values cannot be read as one array: {error}") from error


def stacked(values: Sequence[Any]) -> Array:
    """One array of values per sequence."""
    if values and hasattr(values[0], "new_full"):
        import torch

        try:
            return torch.stack(list(values))
        except (TypeError, RuntimeError) as error:
            raise InvalidOption(f"values cannot be read as one array: {error}") from error
    return as_array(values)


def take(values: Array, index: IntArray) -> Array:
    """The values at these places."""
    if hasattr(values, "index_select"):
        import torch

        # A copy, because PyTorch warns of arrays that are read-only.
        return values.index_select(0, torch.as_tensor(index.copy(), device=values.device))
    return values[index]


def joined(parts: Sequence[Array]) -> Array:
    """The parts one after another."""
    try:
        if hasattr(parts[0], "new_full"):
            import torch

            return torch.cat(list(parts))
        return np.concatenate(parts)
    except (TypeError, ValueError, RuntimeError):
        _require_alike(parts)
        raise


def _require_alike(parts: Sequence[Array]) -> None:
    """Raise if some parts are of another library or shape than the first one."""
    first = parts[0]
    for part in parts:
        if isinstance(part, np.ndarray) != isinstance(first, np.ndarray):
            raise InvalidOption(
                f"some values are of type {type(first).__name__} and some {type(part).__name__}; "
                "pass arrays or tensors of one library"
            )
        if part.shape[1:] != first.shape[1:]:
            raise InvalidOption(
                f"values per token have the shapes {tuple(first.shape[1:])} and "
                f"{tuple(part.shape[1:])}; all tokens of a step need one shape"
            )


def full(like: Array, length: int, value: Any, name: str) -> Array:  # noqa: ANN401
    """An array like another one, with one value everywhere: the argument of this name."""
    if not _holds(like.dtype, value):
        raise InvalidOption(
            f"{name} is {value!r} but the values are {like.dtype}; pass a {name} of that type"
        )
    shape = (length, *like.shape[1:])
    if hasattr(like, "new_full"):
        return like.new_full(shape, value)
    return np.full(shape, value, dtype=like.dtype)


def _holds(dtype: Any, value: Any) -> bool:  # noqa: ANN401
    """Whether an array of this type has exactly this value, up to rounding of fractions."""
    if isinstance(value, str | bytes):
        return False
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    if (limits := _integer_limits(dtype)) is None:
        return True
    return number.is_integer() and limits[0] <= value <= limits[1]


def _integer_limits(dtype: Any) -> tuple[int, int] | None:  # noqa: ANN401
    """The least and the largest number of a type of integers or truth values."""
    if "bool" in str(dtype):
        return 0, 1
    if hasattr(dtype, "is_floating_point"):
        import torch

        if dtype.is_floating_point or dtype.is_complex:
            return None
        info: Any = torch.iinfo(dtype)
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
    else:
        return None
    return int(info.min), int(info.max)


def split(values: Array, lengths: list[int]) -> list[Array]:
    """Consecutive parts of these lengths, as views."""
    if hasattr(values, "new_full"):
        return list(values.split_with_sizes(lengths)) if lengths else []
    ends = list(accumulate(lengths))
    return [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]
