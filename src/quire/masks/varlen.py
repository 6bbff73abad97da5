"""Arguments of variable-length attention kernels: the bounds of fragments in the flattened batch.

The kernels take `[B, T]` as one sequence of B · T tokens. Padding is a fragment of its own, so that
the sequence is covered without a gap.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import numpy.typing as npt

from quire.masks.visibility import check_window, fragment_opens

Int32s = npt.NDArray[np.int32]


class VarlenArguments(TypedDict):
    """Keywords of a transformers model whose attention is a flash kernel."""

    cu_seq_lens_q: Int32s
    cu_seq_lens_k: Int32s
    max_length_q: int
    max_length_k: int


class KernelArguments(TypedDict):
    """Keywords of `flash_attn_varlen_func`."""

    cu_seqlens_q: Int32s
    cu_seqlens_k: Int32s
    max_seqlen_q: int
    max_seqlen_k: int
    causal: bool
    window_size: tuple[int, int]


def varlen_arguments(segment_ids: npt.ArrayLike) -> VarlenArguments:
    """Keywords for `model(**…)`; a sliding window comes from the model's config.

    >>> varlen_arguments([[1, 1, 2, 0]])["cu_seq_lens_q"]
    array([0, 2, 3, 4], dtype=int32)
    """
    bounds = cu_seqlens(segment_ids)
    longest = int(np.diff(bounds).max())
    return VarlenArguments(
        cu_seq_lens_q=bounds,
        cu_seq_lens_k=bounds,
        max_length_q=longest,
        max_length_k=longest,
    )


def kernel_arguments(segment_ids: npt.ArrayLike, window: int | None = None) -> KernelArguments:
    """Keywords for the kernel itself, to call it without transformers.

    Its window counts the keys to the left of the query, without the query; -1 means no limit.
    """
    if window is not None:
        check_window(window)
    bounds = cu_seqlens(segment_ids)
    longest = int(np.diff(bounds).max())
    return KernelArguments(
        cu_seqlens_q=bounds,
        cu_seqlens_k=bounds,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        causal=True,
        window_size=(-1 if window is None else window - 1, 0),
    )


def cu_seqlens(segment_ids: npt.ArrayLike) -> Int32s:
    """The bounds of all fragments in the flattened batch, from 0 to B · T."""
    opens = fragment_opens(segment_ids).reshape(-1)
    return np.append(np.flatnonzero(opens), opens.size).astype(np.int32)
