"""The images and videos of one document of a packed vision-language batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from quire.errors import ModelError
from quire.verify.layout import Batch, as_numpy
from quire.verify.report import Document

KINDS = {1: ("pixel_values", "image_grid_thw"), 2: ("pixel_values_videos", "video_grid_thw")}
"""Patches and grids, by their placeholders' number in `mm_token_type_ids`."""
SECONDS = "second_per_grid_ts"
FIELDS = (*(name for names in KINDS.values() for name in names), SECONDS)


def images_of(batch: Batch, document: Document) -> dict[str, object]:
    """Patches, grids and seconds of the document's own images; nothing if it has none."""
    found: dict[str, object] = {}
    for kind, (pixels, grid) in KINDS.items():
        if batch.get(pixels) is None or batch.get(grid) is None:
            continue
        patches = as_numpy(batch[grid]).prod(axis=1)
        mine = _own(batch, document, kind, patches)
        if not mine.any():
            continue
        found[pixels] = _chosen(batch[pixels], mine.repeat(patches))
        found[grid] = _chosen(batch[grid], mine)
        if kind == 2 and batch.get(SECONDS) is not None:
            found[SECONDS] = _chosen(batch[SECONDS], mine)
    return found


def _own(
    batch: Batch, document: Document, kind: int, patches: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Which images stand in the document, found by counting placeholders from the left."""
    if batch.get("mm_token_type_ids") is None:
        raise ModelError("without mm_token_type_ids, images cannot be cut to a single document")
    types = as_numpy(batch["mm_token_type_ids"])
    counted = np.append(0, np.cumsum(types == kind))
    if not counted[-1]:
        raise ModelError("images without placeholders cannot be cut to a single document")
    ends = patches.cumsum() // (patches.sum() // counted[-1])
    first = document.row * types.shape[1]
    before, through = counted[first + document.start], counted[first + document.stop]
    own: np.ndarray[Any, Any] = (ends > before) & (ends <= through)
    return own


def _chosen(values: object, rows: np.ndarray[Any, Any]) -> object:
    if isinstance(values, torch.Tensor):
        return values[torch.from_numpy(rows).to(values.device)]
    return np.asarray(values)[rows]
