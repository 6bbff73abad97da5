"""Masks for flex attention, from fragment bounds, without a T × T mask in between.

A token attends to one interval of keys, whose start never moves left along a row. So the key blocks
that a block of queries touches are one interval too, and the *full* blocks (which need no mask) are
an interval inside it: arithmetic on T numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.attention.flex_attention import BlockMask

from quire.errors import InvalidOption
from quire.masks.visibility import Ints, first_visible

Index: TypeAlias = torch.Tensor
MaskMod: TypeAlias = Callable[[Index, Index, Index, Index], torch.Tensor]
Interval: TypeAlias = tuple[Ints, Ints]
Lists: TypeAlias = tuple[torch.Tensor, torch.Tensor]


def mask_mod(segment_ids: torch.Tensor | npt.ArrayLike, window: int | None = None) -> MaskMod:
    """The function (row, head, query, key) -> bool that flex attention takes."""
    values, device = _on_host(segment_ids)
    return _visible(first_visible(values, window), device)


def block_mask(
    segment_ids: torch.Tensor | npt.ArrayLike,
    window: int | None = None,
    block_size: int = 128,
) -> BlockMask:
    """The BlockMask of `[B, T]` segments, for any number of heads; equal to the dense mask.

    It holds (T / block_size)² block numbers per row: 4 MB for 131,072 tokens, where a dense mask
    would take 17 GB.
    """
    if isinstance(block_size, bool) or not isinstance(block_size, int) or block_size < 1:
        raise InvalidOption(f"block_size={block_size!r}, but it must be an int >= 1, such as 128")
    values, device = _on_host(segment_ids)
    first = first_visible(values, window)
    touched, full = _block_intervals(first, block_size)
    partial_keys, full_keys = _block_lists(touched, full, device)
    partial_queries, full_queries = _block_lists(_seen_by(touched), _seen_by(full), device)
    return BlockMask(
        (first.shape[1], first.shape[1]),
        *partial_keys,
        *full_keys,
        *partial_queries,
        *full_queries,
        BLOCK_SIZE=(block_size, block_size),
        mask_mod=_visible(first, device),
    )


def _on_host(
    segment_ids: torch.Tensor | npt.ArrayLike,
) -> tuple[npt.ArrayLike, torch.device]:
    if isinstance(segment_ids, torch.Tensor):
        return segment_ids.numpy(force=True), segment_ids.device
    return segment_ids, torch.device("cpu")


def _visible(first: Ints, device: torch.device) -> MaskMod:
    first_key = torch.from_numpy(first.astype(np.int32)).to(device)

    def visible(row: Index, head: Index, query: Index, key: Index) -> torch.Tensor:
        return (key <= query) & (key >= first_key[row, query])

    return visible


def _block_intervals(first: Ints, block_size: int) -> tuple[Interval, Interval]:
    """Half-open intervals of key blocks per block of queries: those touched, those full.

    A key block is full for the queries a..b when it ends at or before a, and starts at or after
    the first key of b, which sees the fewest old keys. If the row ends inside the last block of
    queries, that block has no full key blocks, because the missing queries see nothing; torch's
    own construction does the same.
    """
    length = first.shape[1]
    opening = np.arange(0, length, block_size)
    closing = np.minimum(opening + block_size, length) - 1
    touched_from = first[:, opening] // block_size
    touched_to = np.broadcast_to(closing // block_size + 1, touched_from.shape)
    full_from = -(-first[:, closing] // block_size)
    full_to = np.maximum(full_from, (opening + 1) // block_size)
    if length % block_size:
        full_from[:, -1] = full_to[:, -1] = touched_to[:, -1]
    return (touched_from, touched_to), (full_from, full_to)


def _seen_by(interval: Interval) -> Interval:
    """The intervals of query blocks by which each key block is seen: the transposed relation.

    Both ends only move right from one query block to the next, so counting finds them. torch
    transposes by sorting (T / block_size)² numbers, which took nine tenths of the whole.
    """
    blocks = np.arange(interval[0].shape[1])[:, None]
    ended = (interval[1][:, None, :] <= blocks).sum(axis=-1)
    begun = (interval[0][:, None, :] <= blocks).sum(axis=-1)
    return ended, begun


def _block_lists(touched: Interval, full: Interval, device: torch.device) -> tuple[Lists, Lists]:
    """The blocks that need the mask (those touched left and right of the full ones), and the
    full ones."""
    nothing = (full[1], full[1])
    partial = _joined((touched[0], full[0]), (full[1], touched[1]), device)
    return partial, _joined(full, nothing, device)


def _joined(left: Interval, right: Interval, device: torch.device) -> Lists:
    """Counts `[B, 1, Q]` and block numbers `[B, 1, Q, K]` of the left, then the right interval."""
    left_size = (left[1] - left[0])[..., None]
    count = left_size[..., 0] + right[1] - right[0]
    column = np.arange(count.shape[1])
    shift = np.where(column < left_size, left[0][..., None], right[0][..., None] - left_size)
    block = np.minimum(column + shift, count.shape[1] - 1)  # beyond the count: any valid block
    return _int32(count, device), _int32(block, device)


def _int32(values: Ints, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int32)[:, None]).to(device)
