"""A batch of numpy arrays as the library's arrays that were asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.errors import missing_dependency, unknown_name

if TYPE_CHECKING:
    import torch
    from torch.nn.attention.flex_attention import BlockMask

Array: TypeAlias = "npt.NDArray[np.generic] | torch.Tensor"
Value: TypeAlias = "Array | BlockMask | int | bool | tuple[()] | Mapping[str, Array]"
Batch: TypeAlias = "dict[str, Value]"

RETURN_TENSORS = ("pt", "np")


def require_return_tensors(name: str) -> None:
    """Raise unless batches of this kind can be made."""
    if name not in RETURN_TENSORS:
        raise unknown_name("return_tensors", name, RETURN_TENSORS)


def as_batch(arrays: Batch, return_tensors: str) -> Batch:
    """The same batch with torch tensors for ``"pt"``; they share the arrays' memory."""
    if return_tensors == "np":
        return arrays
    try:
        import torch
    except ImportError:
        raise missing_dependency("torch", "return_tensors='pt'", "torch") from None

    def as_tensor(value: Value) -> Value:
        if isinstance(value, np.ndarray):
            return torch.from_numpy(value)
        if isinstance(value, Mapping):
            return {name: as_tensor(item) for name, item in value.items()}  # type: ignore[misc]
        return value

    return {name: as_tensor(value) for name, value in arrays.items()}
