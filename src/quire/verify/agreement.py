"""What the parts of a batch say about documents, held against where documents are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.attention.flex_attention import create_mask

from quire.masks.dense import bool_mask
from quire.masks.visibility import fragment_starts
from quire.verify.layout import (
    Batch,
    Layout,
    as_numpy,
    opens_from_bounds,
    text_positions,
)
from quire.verify.report import Disagreement

Opens = npt.NDArray[np.bool_]
LARGEST_DENSE = 8192
"""A block mask of more tokens is not made dense to be looked at."""


def disagreements(batch: Batch, layout: Layout) -> tuple[Disagreement, ...]:
    """All parts of the batch that contradict the layout; padding may be cut as one likes."""
    checks = (_positions, _segment_forms, _bounds, _longest, _two_axis_mask, _dense_masks)
    return tuple(found for check in checks for found in check(batch, layout))


def _positions(batch: Batch, layout: Layout) -> Iterator[Disagreement]:
    if batch.get("position_ids") is None:
        return
    given = as_numpy(batch["position_ids"])
    positions = text_positions(given, _shape(layout))
    if positions is None:
        yield Disagreement(form="position_ids", message=_no_text_row(given))
        return
    expected = layout.position_ids()
    wrong = np.argwhere((positions != expected) & layout.is_document)
    if len(wrong):
        row, token = (int(index) for index in wrong[0])
        yield Disagreement(
            form="position_ids",
            message=f"row {row} token {token} has position {int(positions[row, token])} but stands "
            f"{int(expected[row, token])} after its document's start",
        )


def _no_text_row(positions: npt.NDArray[np.generic]) -> str:
    if positions.ndim == 3 and positions.shape[0] == 3:
        return (
            "three rows of mRoPE positions and no text row: transformers finds documents only "
            "in the first of four rows"
        )
    return f"shape {positions.shape} is none of [rows, tokens] and [4, rows, tokens]"


def _segment_forms(batch: Batch, layout: Layout) -> Iterator[Disagreement]:
    for form in ("segment_ids", "seq_idx"):
        if batch.get(form) is not None:
            values = as_numpy(batch[form]).astype(np.int64)
            yield from _compare(form, _changes(values), layout)


def _bounds(batch: Batch, layout: Layout) -> Iterator[Disagreement]:
    for form in ("cu_seq_lens_q", "cu_seq_lens_k"):
        if batch.get(form) is None:
            continue
        bounds = as_numpy(batch[form])
        opens = opens_from_bounds(bounds, _shape(layout))
        if opens is None:
            yield Disagreement(
                form=form,
                message=f"{bounds.tolist()} do not rise from 0 to the {layout.segments.size} "
                "places of the batch",
            )
        else:
            yield from _compare(form, opens, layout)


def _longest(batch: Batch, layout: Layout) -> Iterator[Disagreement]:
    longest = max(document.stop - document.start for document in layout.documents)
    for form in ("max_length_q", "max_length_k"):
        given = longest if batch.get(form) is None else int(as_numpy(batch[form]))
        if given < longest:
            message = f"{given} is less than the {longest} tokens of the longest document"
            yield Disagreement(form=form, message=message)


def _two_axis_mask(batch: Batch, layout: Layout) -> Iterator[Disagreement]:
    mask = batch.get("attention_mask")
    if not isinstance(mask, torch.Tensor | np.ndarray) or mask.ndim != 2:
        return
    hidden = np.argwhere((as_numpy(mask) == 0) & layout.is_document)
    if len(hidden):
        row, token = (int(index) for index in hidden[0])
        yield Disagreement(
            form="attention_mask", message=f"hides row {row} token {token} of a document"
        )


def _dense_masks(batch: Batch, layout: Layout) -> Iterator[Disagreement]:
    given = batch.get("attention_mask")
    for mask in given.values() if isinstance(given, Mapping) else [given]:
        visible = _visible(mask, layout)
        if visible is not None:
            yield from _dense_mask(visible, layout)


def _dense_mask(mask: npt.NDArray[np.bool_], layout: Layout) -> Iterator[Disagreement]:
    allowed = bool_mask(layout.segments)[:, 0]
    of_documents = layout.is_document[:, :, None]
    if (mask & ~allowed & of_documents).any():
        row, query, key = (int(i) for i in np.argwhere(mask & ~allowed & of_documents)[0])
        message = f"lets row {row} token {query} see token {key}, which is not of its past"
        yield Disagreement(form="attention_mask", message=message)
        return
    # A mask with a sliding window hides old tokens of the same document; nothing else may.
    window = max(1, int((mask & of_documents).sum(axis=-1).max()))
    missing = bool_mask(layout.segments, window)[:, 0] & ~mask & of_documents
    if missing.any():
        row, query, key = (int(i) for i in np.argwhere(missing)[0])
        message = f"hides token {key} of its own document from row {row} token {query}"
        yield Disagreement(form="attention_mask", message=message)


def _visible(mask: object, layout: Layout) -> npt.NDArray[np.bool_] | None:
    """What a 4-D mask or a block mask lets queries see, `[B, T, T]`."""
    if hasattr(mask, "mask_mod"):
        return _of_block_mask(mask, layout)
    if not isinstance(mask, torch.Tensor | np.ndarray) or mask.ndim != 4:
        return None
    values = as_numpy(mask)[:, 0]
    return values.astype(np.bool_) if values.dtype == np.bool_ else np.equal(values, 0)


def _of_block_mask(mask: object, layout: Layout) -> npt.NDArray[np.bool_] | None:
    rows, length = _shape(layout)
    if length > LARGEST_DENSE:
        return None
    dense = create_mask(mask.mask_mod, rows, 1, length, length, device=mask.kv_num_blocks.device)  # type: ignore[attr-defined]
    return as_numpy(dense)[:, 0].astype(np.bool_)


def _compare(form: str, opens: Opens, layout: Layout) -> Iterator[Disagreement]:
    found, expected = _starts(opens), fragment_starts(layout.segments)
    wrong = np.argwhere((found != expected) & layout.is_document)
    if len(wrong):
        row, token = (int(index) for index in wrong[0])
        start = int(found[row, token])
        place = f"at token {start}" if start >= 0 else "in the row before"
        yield Disagreement(
            form=form,
            message=f"says that the document of row {row} token {token} starts {place}, "
            f"but it starts at token {int(expected[row, token])}",
        )


def _changes(values: npt.NDArray[np.int64]) -> Opens:
    opens = np.ones(values.shape, dtype=np.bool_)
    opens[:, 1:] = values[:, 1:] != values[:, :-1]
    return opens


def _starts(opens: Opens) -> npt.NDArray[np.int64]:
    """Where each token's document starts; -1 if it goes on from the row before."""
    return np.maximum.accumulate(np.where(opens, np.arange(opens.shape[1]), -1), axis=1)


def _shape(layout: Layout) -> tuple[int, int]:
    return layout.segments.shape[0], layout.segments.shape[1]
