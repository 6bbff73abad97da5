"""The batch that holds one document only, as if nothing had been packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from quire.errors import ModelError
from quire.verify.isolation.documents import Batch, as_numpy, like
from quire.verify.isolation.report import Document

BOUNDS = ("cu_seq_lens_q", "cu_seq_lens_k")
LONGEST = ("max_length_q", "max_length_k")
DROPPED = ("labels", "num_items_in_batch", "document_starts")
IMAGES = {1: ("pixel_values", "image_grid_thw"), 2: ("pixel_values_videos", "video_grid_thw")}
"""Patches and grids, by the value of their placeholders in `mm_token_type_ids`."""
SECONDS = "second_per_grid_ts"
IMAGE_FIELDS = (*(name for names in IMAGES.values() for name in names), SECONDS)


def single_document(batch: Batch, document: Document, own_masks: bool) -> dict[str, object]:
    """The batch that holds only this document; ModelError if a part of it cannot be cut.

    With `own_masks` (a transformers model) the model makes its own mask, so that a given mask
    without the model's sliding window is detected.
    """
    rows, tokens = as_numpy(batch["input_ids"]).shape
    dropped = (*DROPPED, *IMAGE_FIELDS, *(["attention_mask"] if own_masks else []))
    parts = {
        name: _cut(name, value, document, (rows, tokens))
        for name, value in batch.items()
        if name not in dropped
    }
    if own_masks:
        parts["use_cache"] = False
    return parts | _images(batch, document)


def _cut(name: str, value: object, document: Document, shape: tuple[int, int]) -> object:
    length = document.stop - document.start
    if name in LONGEST and value is not None:
        return length
    # `use_cache` is an empty tuple where several processes train.
    if not value if isinstance(value, tuple) else isinstance(value, str | float | int | None):
        return value
    if name in BOUNDS:
        return like(value, np.array([0, length]))
    if name == "position_ids" and as_numpy(value).ndim == 2:
        return like(value, np.arange(length)[None])
    return _slice(name, value, document, shape)


def _slice(name: str, value: object, document: Document, shape: tuple[int, int]) -> object:
    """The document's part of an array, by its shape: tokens, tokens × tokens, or mRoPE's rows."""
    row, tokens = slice(document.row, document.row + 1), slice(document.start, document.stop)
    if isinstance(value, torch.Tensor | np.ndarray):
        if value.shape[:2] == shape:
            return value[row, tokens]
        if value.ndim == 4 and value.shape[2:] == (shape[1], shape[1]):
            return value[row, :, tokens, tokens]
        if value.ndim == 3 and value.shape[1:] == shape:
            return value[:, row, tokens]
    raise ModelError(f"{name} cannot be cut to a single document")


def _images(batch: Batch, document: Document) -> dict[str, object]:
    """Patches, grids and seconds of the document's own images."""
    found: dict[str, object] = {}
    for kind, (pixels, grid) in IMAGES.items():
        if batch.get(pixels) is None or batch.get(grid) is None:
            continue
        patches = as_numpy(batch[grid]).prod(axis=1)
        own = _own_images(batch, document, kind, patches)
        if own.any():
            found[pixels] = _select(batch[pixels], own.repeat(patches))
            found[grid] = _select(batch[grid], own)
            if kind == 2 and batch.get(SECONDS) is not None:
                found[SECONDS] = _select(batch[SECONDS], own)
    return found


def _own_images(
    batch: Batch, document: Document, kind: int, patches: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Which images belong to the document, found by counting placeholders from the left."""
    if batch.get("mm_token_type_ids") is None:
        raise ModelError("without mm_token_type_ids, images cannot be cut to a single document")
    types = as_numpy(batch["mm_token_type_ids"])
    num_before = np.append(0, np.cumsum(types == kind))
    if not num_before[-1]:
        raise ModelError("images without placeholders cannot be cut to a single document")
    ends = patches.cumsum() // (patches.sum() // num_before[-1])
    row = document.row * types.shape[1]
    first, last = num_before[row + document.start], num_before[row + document.stop]
    own: np.ndarray[Any, Any] = (ends > first) & (ends <= last)
    return own


def _select(values: object, rows: np.ndarray[Any, Any]) -> object:
    if isinstance(values, torch.Tensor):
        return values[torch.from_numpy(rows).to(values.device)]
    return np.asarray(values)[rows]
