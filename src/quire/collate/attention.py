"""The arguments that each attention backend needs to keep documents apart."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from quire.boundaries import Boundaries
from quire.collate.tensors import Array, Batch

if TYPE_CHECKING:
    from quire.masks.dense import Windows


def transformers_arguments(boundaries: Boundaries) -> Batch:
    """No cache: with one, transformers does not detect packed rows from `position_ids`."""
    return {"use_cache": no_cache()}


def no_cache() -> bool | tuple[()]:
    """The ``use_cache`` of a batch: False, or ``()`` when several processes train.

    transformers takes both as no cache. accelerate's dispatcher, its default for iterable datasets
    on several processes, concatenates and slices all values of a batch, and fails on a bool.
    """
    return () if os.environ.get("WORLD_SIZE", "1") not in ("", "0", "1") else False


def sdpa_arguments(boundaries: Boundaries, windows: Windows = None) -> Batch:
    """A bool mask `[B, 1, T, T]`, or one for each type of layer."""
    from quire.masks.dense import bool_mask, masks_by_layer

    segments = boundaries.segment_ids()
    return {"attention_mask": masks_by_layer(lambda window: bool_mask(segments, window), windows)}


def eager_arguments(
    boundaries: Boundaries, windows: Windows = None, dtype: str = "float32"
) -> Batch:
    """A float mask `[B, 1, T, T]`, which eager attention adds, or one for each type of layer.

    32-bit, like its softmax. Some models (OPT, BioGPT) multiply the result by values of their own
    dtype and so need that dtype; numpy has no bfloat16, so the mask is then a torch tensor.
    """
    from quire.masks.dense import float_mask, masks_by_layer

    segments = boundaries.segment_ids()

    def mask(window: int | None) -> Array:
        if dtype == "float32":
            return float_mask(segments, np.float32, window)
        import torch

        of_model: torch.dtype = getattr(torch, dtype)
        return float_mask(torch.from_numpy(segments), of_model, window)

    return {"attention_mask": masks_by_layer(mask, windows)}


def flex_arguments(boundaries: Boundaries) -> Batch:
    """A `BlockMask`."""
    from quire.masks.flex import block_mask

    return {"attention_mask": block_mask(boundaries.segment_ids())}


def varlen_arguments(boundaries: Boundaries) -> Batch:
    """Bounds in the flattened batch, with padding as a segment, under transformers' names."""
    return varlen_batch(boundaries.cu_seqlens(), boundaries.max_length)


def varlen_batch(bounds: npt.NDArray[np.int32], longest: int) -> Batch:
    """Bounds of segments and the longest one, for queries and keys alike."""
    return {
        "cu_seq_lens_q": bounds,
        "cu_seq_lens_k": bounds,
        "max_length_q": longest,
        "max_length_k": longest,
    }


def padded_varlen_arguments(boundaries: Boundaries) -> Batch:
    """The pair that context-parallel kernels take: tokens before each fragment, and its position.

    Under separate names, because a kernel unaware of padding must not use them as bounds.
    """
    true, padded = boundaries.true_cu_seqlens(), boundaries.padded_cu_seqlens()
    return {
        "cu_seq_lens_q_true": true,
        "cu_seq_lens_k_true": true,
        "cu_seq_lens_q_padded": padded,
        "cu_seq_lens_k_padded": padded,
    }


def segment_arguments(boundaries: Boundaries) -> Batch:
    """Segment numbers for JAX (0 on padding) and for state-space kernels (from 0)."""
    return {"segment_ids": boundaries.segment_ids(), "seq_idx": boundaries.seq_idx()}


ATTENTION: Mapping[str, Callable[[Boundaries], Batch]] = MappingProxyType(
    {
        "transformers": transformers_arguments,
        "sdpa": sdpa_arguments,
        "eager": eager_arguments,
        "flex": flex_arguments,
        "varlen": varlen_arguments,
        "segments": segment_arguments,
    }
)

DENSE = ("sdpa", "eager")
"""The forms that replace the model's own masks, and so its sliding windows."""
MASK_DTYPES = ("float32", "bfloat16", "float16", "float64")
