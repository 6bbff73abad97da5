"""Position ids of packed rows, for custom collators (the name is seed 001's)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, cast, overload

import numpy as np
import numpy.typing as npt

from quire.boundaries import Boundaries
from quire.errors import InvalidOption, InvalidRow
from quire.masks.dense import is_tensor

if TYPE_CHECKING:
    import torch

Ints: TypeAlias = npt.NDArray[np.int64]


@overload
def get_pos_ids_for_packed_sequence(
    x: torch.Tensor,
    token_id: int | None = None,
    document_starts: Sequence[npt.ArrayLike] | None = None,
    eos: bool = True,
) -> torch.Tensor: ...
@overload
def get_pos_ids_for_packed_sequence(
    x: npt.ArrayLike,
    token_id: int | None = None,
    document_starts: Sequence[npt.ArrayLike] | None = None,
    eos: bool = True,
) -> Ints: ...
def get_pos_ids_for_packed_sequence(
    x: torch.Tensor | npt.ArrayLike,
    token_id: int | None = None,
    document_starts: Sequence[npt.ArrayLike] | None = None,
    eos: bool = True,
) -> torch.Tensor | Ints:
    """Positions of `[B, T]` tokens that restart at every document, a tensor if `x` is one.

    Documents start at `document_starts` where these are given, else after each `token_id`, or at
    each with ``eos=False``. Rows are assumed to be full: if padding has the id of EOS, pass starts.

    >>> get_pos_ids_for_packed_sequence(np.array([[5, 6, 2, 7, 2, 8]]), token_id=2)
    array([[0, 1, 2, 0, 1, 0]])
    """
    tokens = np.asarray(x.cpu() if is_tensor(x) else x)
    if tokens.ndim != 2 or tokens.size == 0 or tokens.dtype.kind not in "iu":
        raise InvalidRow(
            f"tokens have shape {tokens.shape} and dtype {tokens.dtype}; pass integers [B, T]"
        )
    if document_starts is not None:
        boundaries = Boundaries.of_rows(document_starts, [tokens.shape[1]] * len(tokens))
    elif token_id is not None:
        boundaries = Boundaries.of_tokens(tokens, token_id, ends=eos)
    else:
        raise InvalidOption(
            "neither document_starts nor token_id is given; pass one to find document starts"
        )
    positions = boundaries.position_ids()
    if not is_tensor(x):
        return positions
    return cast("torch.Tensor", sys.modules["torch"].from_numpy(positions).to(x.device))
