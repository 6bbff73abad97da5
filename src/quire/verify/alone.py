"""Calling the model on one document alone, as if nothing had been packed."""

from __future__ import annotations

import numpy as np
import torch

from quire.errors import ModelError
from quire.verify.calls import like
from quire.verify.images import FIELDS, images_of
from quire.verify.layout import Batch, as_numpy
from quire.verify.report import Document

BOUNDS = ("cu_seq_lens_q", "cu_seq_lens_k")
LONGEST = ("max_length_q", "max_length_k")
DROPPED = ("labels", "num_items_in_batch", "document_starts")


def alone(batch: Batch, document: Document, own_masks: bool) -> dict[str, object]:
    """The batch that holds this document only; ModelError if a part of it cannot be cut.

    With `own_masks` (a transformers model) the model is left to make its mask itself, so that a
    mask of ours that lacks the model's sliding window is found out.
    """
    shape = as_numpy(batch["input_ids"]).shape
    parts: dict[str, object] = {}
    for name, value in batch.items():
        if name in DROPPED or name in FIELDS or (own_masks and name == "attention_mask"):
            continue
        parts[name] = _cut(name, value, document, (shape[0], shape[1]))
    if own_masks:
        parts["use_cache"] = False
    return parts | images_of(batch, document)


def _cut(name: str, value: object, document: Document, shape: tuple[int, int]) -> object:
    length = document.stop - document.start
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, tuple) and not value:  # `use_cache` where several processes train
        return value
    if name in LONGEST or isinstance(value, int):
        return length if name in LONGEST else value
    if name in BOUNDS:
        return like(value, np.array([0, length]))
    if name == "position_ids" and as_numpy(value).ndim == 2:
        return like(value, np.arange(length)[None])
    return _slice(name, value, document, shape)


def _slice(name: str, value: object, document: Document, shape: tuple[int, int]) -> object:
    """The document's part of an array by its shape: tokens, tokens × tokens, or mRoPE's rows."""
    row, tokens = slice(document.row, document.row + 1), slice(document.start, document.stop)
    if isinstance(value, torch.Tensor | np.ndarray):
        if value.shape[:2] == shape:
            return value[row, tokens]
        if value.ndim == 4 and value.shape[2:] == (shape[1], shape[1]):
            return value[row, :, tokens, tokens]
        if value.ndim == 3 and value.shape[1:] == shape:
            return value[:, row, tokens]
    raise ModelError(f"{name} cannot be cut to a single document")
