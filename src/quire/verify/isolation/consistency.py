"""Whether the parts of a batch agree on where its documents are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.attention.flex_attention import create_mask

from quire.masks.dense import bool_mask
from quire.masks.visibility import fragment_starts
from quire.verify.isolation.documents import (
    Array,
    Batch,
    BatchDocuments,
    Starts,
    as_numpy,
    changes,
    starts_from_bounds,
    text_positions,
)
from quire.verify.isolation.report import Disagreement

Mask: TypeAlias = npt.NDArray[np.bool_]
LARGEST_DENSE = 8192
"""A block mask over more tokens than this is not made dense to be checked."""


def disagreements(batch: Batch, documents: BatchDocuments) -> tuple[Disagreement, ...]:
    """All parts of the batch that contradict the documents; on padding they may differ."""
    checks = {
        "position_ids": _position_problems,
        "segment_ids": _segment_problems,
        "seq_idx": _segment_problems,
        "cu_seq_lens_q": _bound_problems,
        "cu_seq_lens_k": _bound_problems,
        "max_length_q": _longest_problems,
        "max_length_k": _longest_problems,
        "attention_mask": _mask_problems,
    }
    return tuple(
        Disagreement(form=form, message=message)
        for form, check in checks.items()
        if batch.get(form) is not None
        for message in check(batch[form], documents)
    )


def _position_problems(given: object, documents: BatchDocuments) -> Iterator[str]:
    array, expected = as_numpy(given), documents.position_ids()
    positions = text_positions(array, documents.shape)
    if positions is None and array.ndim == 3 and array.shape[0] == 3:
        yield (
            "three rows of mRoPE positions and no text row: transformers finds documents only "
            "in the first of four rows"
        )
    elif positions is None:
        yield f"shape {array.shape} is neither [rows, tokens] nor [4, rows, tokens]"
    elif at := _first((positions != expected) & documents.is_document):
        row, token = at
        yield (
            f"row {row} token {token} has position {int(positions[at])} but is {int(expected[at])} "
            "after its document's start"
        )


def _segment_problems(given: object, documents: BatchDocuments) -> Iterator[str]:
    yield from _start_problems(changes(as_numpy(given)), documents)


def _bound_problems(given: object, documents: BatchDocuments) -> Iterator[str]:
    bounds = as_numpy(given)
    starts = starts_from_bounds(bounds, documents.shape)
    if starts is None:
        size = documents.segments.size
        yield f"{bounds.tolist()} do not increase from 0 to the {size} tokens of the batch"
    else:
        yield from _start_problems(starts, documents)


def _start_problems(starts: Starts, documents: BatchDocuments) -> Iterator[str]:
    expected = fragment_starts(documents.segments)
    # -1 where a document continues from the row before.
    found = np.maximum.accumulate(np.where(starts, np.arange(starts.shape[1]), -1), axis=1)
    if at := _first((found != expected) & documents.is_document):
        row, token = at
        place = f"at token {int(found[at])}" if found[at] >= 0 else "in the row before"
        yield (
            f"says that the document of row {row} token {token} starts {place}, "
            f"but it starts at token {int(expected[at])}"
        )


def _longest_problems(given: object, documents: BatchDocuments) -> Iterator[str]:
    longest = max(document.stop - document.start for document in documents.documents)
    if int(as_numpy(given)) < longest:
        yield f"{int(as_numpy(given))} is less than the {longest} tokens of the longest document"


def _mask_problems(given: object, documents: BatchDocuments) -> Iterator[str]:
    for mask in given.values() if isinstance(given, Mapping) else [given]:
        if isinstance(mask, torch.Tensor | np.ndarray) and mask.ndim == 2:
            if at := _first((as_numpy(mask) == 0) & documents.is_document):
                yield f"hides row {at[0]} token {at[1]} of a document"
        elif (visible := _visible(mask, documents)) is not None:
            yield from _dense_mask_problems(visible, documents)


def _dense_mask_problems(mask: Mask, documents: BatchDocuments) -> Iterator[str]:
    own = documents.is_document[:, :, None]
    allowed = bool_mask(documents.segments)[:, 0]
    if at := _first(mask & ~allowed & own):
        row, query, key = at
        yield f"lets row {row} token {query} see token {key}, which it should not"
        return
    # A mask with a sliding window hides old tokens of the same document; nothing else may.
    window = max(1, int((mask & own).sum(axis=-1).max()))
    if at := _first(bool_mask(documents.segments, window)[:, 0] & ~mask & own):
        row, query, key = at
        yield f"hides token {key} of its own document from row {row} token {query}"


def _visible(mask: object, documents: BatchDocuments) -> Mask | None:
    """What a 4-D mask or a block mask lets queries see, `[B, T, T]`."""
    if hasattr(mask, "mask_mod"):
        rows, length = documents.shape
        if length > LARGEST_DENSE:
            return None
        device = mask.kv_num_blocks.device  # type: ignore[attr-defined]
        mask = create_mask(mask.mask_mod, rows, 1, length, length, device=device)
    if not isinstance(mask, torch.Tensor | np.ndarray) or mask.ndim != 4:
        return None
    values = as_numpy(mask)[:, 0]
    return values.astype(np.bool_) if values.dtype == np.bool_ else np.equal(values, 0)


def _first(wrong: Array) -> tuple[int, ...] | None:
    """The first place at which something is wrong."""
    places = np.argwhere(wrong)
    return tuple(map(int, places[0])) if len(places) else None
