"""The documents of a batch: found where the batch has their boundaries, and cut out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from quire.boundaries import Boundaries
from quire.errors import InvalidBoundaries, InvalidOption, ModelError
from quire.masks.visibility import fragment_opens, fragment_starts
from quire.printable import counted
from quire.verify.isolation.report import Document

Batch: TypeAlias = Mapping[str, object]
Array: TypeAlias = npt.NDArray[np.generic]
Segments: TypeAlias = npt.NDArray[np.integer]
Starts: TypeAlias = npt.NDArray[np.bool_]
"""`[B, T]`: whether a document starts at a token."""
BOUNDS = ("cu_seq_lens_q", "cu_seq_lens_k")
LONGEST = ("max_length_q", "max_length_k")
DROPPED = ("labels", "num_items_in_batch", "document_starts")
IMAGES = {1: ("pixel_values", "image_grid_thw"), 2: ("pixel_values_videos", "video_grid_thw")}
"""Patches and grids, by the value of their placeholders in `mm_token_type_ids`."""
SECONDS = "second_per_grid_ts"
IMAGE_FIELDS = (*(name for names in IMAGES.values() for name in names), SECONDS)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BatchDocuments:
    """The documents of a batch, and its runs of padding."""

    segments: Segments
    """`[B, T]`: 1..k within a row, 0 on padding."""
    documents: tuple[Document, ...]
    padding: tuple[Document, ...]

    @classmethod
    def of_segments(cls, segment_ids: npt.ArrayLike) -> BatchDocuments:
        """The documents of these segment ids."""
        segments = np.asarray(segment_ids)
        starts = np.argwhere(fragment_opens(segments)).tolist()
        found = [
            Document(
                row=row,
                number=int(segments[row, start]),
                start=start,
                stop=next_start if next_row == row else segments.shape[1],
            )
            for (row, start), (next_row, next_start) in zip(
                starts, [*starts[1:], [-1, 0]], strict=True
            )
        ]
        return cls(
            segments=segments,
            documents=tuple(document for document in found if document.number),
            padding=tuple(document for document in found if not document.number),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and tokens."""
        return self.segments.shape[0], self.segments.shape[1]

    @property
    def is_document(self) -> npt.NDArray[np.bool_]:
        """`[B, T]`: whether a token belongs to a document."""
        return np.not_equal(self.segments, 0)

    def position_ids(self) -> npt.NDArray[np.int64]:
        """`[B, T]`: positions that restart with every document and run of padding."""
        return np.arange(self.segments.shape[1]) - fragment_starts(self.segments)


def find_documents(
    batch: Batch,
    document_starts: Sequence[npt.ArrayLike] | None = None,
    segment_ids: npt.ArrayLike | None = None,
) -> BatchDocuments:
    """The documents that the caller gives, else those that the batch says."""
    shape = _shape(batch)
    if segment_ids is not None:
        segments = _require_shape(segment_ids, shape, "segment_ids")
    elif document_starts is not None:
        segments = _segments_from_starts(batch, document_starts, shape)
    else:
        found = _segments_in(batch, shape)
        if found is None:
            raise InvalidOption(
                f"the batch has {', '.join(sorted(batch))}, which do not say where documents "
                "start; pass document_starts (or segment_ids) to check_isolation"
            )
        segments = found
    return BatchDocuments.of_segments(segments)


def as_numpy(value: object) -> Array:
    """Any array or tensor as a NumPy array."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return np.asarray(value)


def like(original: object, values: Array) -> object:
    """The values with the original's dtype: a tensor on its device, or an array."""
    if isinstance(original, torch.Tensor):
        return torch.as_tensor(values).to(original.device, original.dtype)
    return values.astype(np.asarray(original).dtype)


def changes(values: Array, step: int = 0) -> Starts:
    """`[B, T]`: where a value is not its left neighbor's plus `step`.

    >>> changes(np.array([[0, 1, 0]]), step=1)
    array([[ True, False,  True]])
    """
    starts = np.ones(values.shape, dtype=np.bool_)
    starts[:, 1:] = np.diff(values.astype(np.int64), axis=1) != step
    return starts


def starts_from_bounds(bounds: Array, shape: tuple[int, int]) -> Starts | None:
    """Where cumulative lengths start a segment; None if they do not cover the flattened batch."""
    given, size = bounds.astype(np.int64), shape[0] * shape[1]
    if given.size < 2 or given[0] != 0 or given[-1] != size or (np.diff(given) < 0).any():
        return None
    starts = np.zeros(size + 1, dtype=np.bool_)
    starts[given] = True
    return starts[:-1].reshape(shape)


def text_positions(positions: Array, shape: tuple[int, int]) -> Array | None:
    """`[B, T]` positions: the first row of mRoPE's four; None for its three rows."""
    if positions.ndim == 3 and positions.shape[0] == 4:
        positions = positions[0]
    if positions.ndim != 2 or positions.shape[0] not in (1, shape[0]):
        return None
    return np.broadcast_to(positions, shape) if positions.shape[1] == shape[1] else None


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


def _shape(batch: Batch) -> tuple[int, int]:
    if "input_ids" not in batch:
        raise InvalidOption(
            f"the batch has {', '.join(sorted(batch)) or 'no keys'} but no input_ids; "
            "the check changes tokens, so it needs them"
        )
    shape = as_numpy(batch["input_ids"]).shape
    if len(shape) != 2 or 0 in shape:
        raise InvalidBoundaries(f"input_ids have shape {shape}; the check needs [rows, tokens]")
    return shape[0], shape[1]


def _require_shape(value: object, shape: tuple[int, int], name: str) -> Segments:
    array = as_numpy(value)
    if array.shape != shape:
        raise InvalidBoundaries(
            f"{name} have shape {array.shape} but input_ids {shape}; they must have the same shape"
        )
    return array.astype(np.int64)


def _segments_from_starts(
    batch: Batch, document_starts: Sequence[npt.ArrayLike], shape: tuple[int, int]
) -> Segments:
    if len(document_starts) != shape[0]:
        raise InvalidBoundaries(
            f"document_starts are given for {counted(len(document_starts), 'row')} but the batch "
            f"has {shape[0]}; give one list for each row"
        )
    lengths, mask = [shape[1]] * shape[0], batch.get("attention_mask")
    if mask is not None and as_numpy(mask).shape == shape:
        lengths = [int(count) for count in as_numpy(mask).astype(bool).sum(axis=1)]
    return Boundaries.of_rows(document_starts, lengths, width=shape[1]).segment_ids()


def _segments_in(batch: Batch, shape: tuple[int, int]) -> Segments | None:
    if batch.get("segment_ids") is not None:
        return _require_shape(batch["segment_ids"], shape, "segment_ids")
    if batch.get("seq_idx") is not None:
        return _require_shape(batch["seq_idx"], shape, "seq_idx") + 1
    starts = None
    if batch.get("position_ids") is not None:
        positions = text_positions(as_numpy(batch["position_ids"]), shape)
        starts = None if positions is None else changes(positions, step=1)
    if starts is None and batch.get("cu_seq_lens_q") is not None:
        starts = starts_from_bounds(as_numpy(batch["cu_seq_lens_q"]), shape)
    return None if starts is None else np.cumsum(starts, axis=1)


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
