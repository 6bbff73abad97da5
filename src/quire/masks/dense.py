"""Dense masks `[B, 1, T, T]`: bool for SDPA, float for eager attention.

Eager attention *adds* its mask, so a bool one is silently wrong there; hence two functions.
Padding attends to itself and earlier padding, so every query has a key and softmax never produces
NaN. Documents never attend to padding. Costs B · T² bytes (bool). Tensors give tensors, on the same
device; anything else gives numpy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, TypeVar, overload

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption
from quire.masks.visibility import Bools, first_visible

if TYPE_CHECKING:
    import torch

Mask = TypeVar("Mask")
Windows: TypeAlias = "int | Mapping[str, int | None] | None"
"""No sliding window, one for all layers, or one (or None) for each type of layer."""


def masks_by_layer(make: Callable[[int | None], Mask], windows: Windows) -> Mask | dict[str, Mask]:
    """The mask that `make` returns for the window, or one for each type of layer.

    transformers takes such a mapping as `attention_mask` from models that mix layers, under the
    names of their config's `layer_types`.

    >>> masks_by_layer(str, {"full_attention": None, "sliding_attention": 128})
    {'full_attention': 'None', 'sliding_attention': '128'}
    """
    if isinstance(windows, Mapping):
        return {kind: make(window) for kind, window in windows.items()}
    return make(windows)


@overload
def bool_mask(segment_ids: torch.Tensor, window: int | None = None) -> torch.Tensor: ...
@overload
def bool_mask(segment_ids: npt.ArrayLike, window: int | None = None) -> Bools: ...
def bool_mask(
    segment_ids: torch.Tensor | npt.ArrayLike, window: int | None = None
) -> torch.Tensor | Bools:
    """True where the query (third axis) sees the key (last axis).

    >>> bool_mask([[1, 1, 2]])[0, 0].astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    if not is_tensor(segment_ids):
        return _visible(segment_ids, window)
    import torch  # already loaded: the caller has a tensor

    mask = torch.from_numpy(_visible(segment_ids.numpy(force=True), window))
    return mask.to(segment_ids.device)


@overload
def float_mask(
    segment_ids: torch.Tensor, dtype: torch.dtype, window: int | None = None
) -> torch.Tensor: ...
@overload
def float_mask(
    segment_ids: npt.ArrayLike, dtype: npt.DTypeLike, window: int | None = None
) -> npt.NDArray[np.floating]: ...
def float_mask(
    segment_ids: torch.Tensor | npt.ArrayLike,
    dtype: torch.dtype | npt.DTypeLike,
    window: int | None = None,
) -> torch.Tensor | npt.NDArray[np.floating]:
    """0 where the query sees the key, the lowest number of `dtype` (the model's) elsewhere.

    >>> float_mask([[1, 2]], np.float16)[0, 0].tolist()
    [[0.0, -65504.0], [-65504.0, 0.0]]
    """
    if not is_tensor(segment_ids):
        return np.where(_visible(segment_ids, window), 0, _lowest(dtype))
    import torch  # already loaded: the caller has a tensor

    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise _not_a_float(dtype)
    mask = bool_mask(segment_ids, window)
    floats = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return floats.masked_fill_(~mask, torch.finfo(dtype).min)


def _visible(segment_ids: npt.ArrayLike, window: int | None) -> Bools:
    first = first_visible(segment_ids, window)
    keys = np.arange(first.shape[1])
    causal = keys <= keys[:, None]
    return (causal & (keys >= first[:, :, None]))[:, None]


def _lowest(dtype: torch.dtype | npt.DTypeLike) -> np.floating:
    try:
        return np.finfo(dtype).min  # type: ignore[no-any-return]
    except (TypeError, ValueError):
        raise _not_a_float(dtype) from None


def _not_a_float(dtype: object) -> InvalidOption:
    return InvalidOption(
        f"a float mask cannot have dtype {dtype}; pass the model's floating dtype, of the same "
        "library as segment_ids"
    )


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Whether this is a torch tensor; never imports torch."""
    # A tensor cannot exist before its library is loaded.
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)
