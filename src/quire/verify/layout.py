"""Where the documents of a batch stand, from whichever part of it says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from quire.boundaries import Boundaries
from quire.errors import InvalidBoundaries, InvalidOption
from quire.masks.visibility import fragment_opens, fragment_starts
from quire.verify.report import Document

Batch: TypeAlias = Mapping[str, object]
Segments: TypeAlias = npt.NDArray[np.integer]
Opens: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layout:
    """The documents of a batch, and its stretches of padding."""

    segments: Segments
    """`[B, T]`: 1..k within a row, 0 on padding."""
    documents: tuple[Document, ...]
    padding: tuple[Document, ...]

    @classmethod
    def of_segments(cls, segment_ids: npt.ArrayLike) -> Layout:
        """The layout that these segment ids describe."""
        segments = np.asarray(segment_ids)
        places = np.argwhere(fragment_opens(segments)).tolist()
        ends = [*places[1:], [-1, 0]]
        found = [
            Document(
                row=row,
                number=int(segments[row, start]),
                start=start,
                stop=next_start if next_row == row else segments.shape[1],
            )
            for (row, start), (next_row, next_start) in zip(places, ends, strict=True)
        ]
        return cls(
            segments=segments,
            documents=tuple(document for document in found if document.number),
            padding=tuple(document for document in found if not document.number),
        )

    @property
    def is_document(self) -> Opens:
        """`[B, T]`: where a document stands."""
        return np.not_equal(self.segments, 0)

    def position_ids(self) -> npt.NDArray[np.int64]:
        """`[B, T]`: positions that restart with every document and stretch of padding."""
        return np.arange(self.segments.shape[1]) - fragment_starts(self.segments)


def find_layout(
    batch: Batch,
    document_starts: Sequence[npt.ArrayLike] | None = None,
    segment_ids: npt.ArrayLike | None = None,
) -> Layout:
    """The layout as the caller gives it, else as the batch says it."""
    shape = _shape(batch)
    if segment_ids is not None:
        return Layout.of_segments(_of_shape(segment_ids, shape, "segment_ids"))
    if document_starts is not None:
        return Layout.of_segments(_from_starts(batch, document_starts, shape))
    for form in (_from_segment_ids, _from_seq_idx, _from_position_ids, _from_bounds):
        segments = form(batch, shape)
        if segments is not None:
            return Layout.of_segments(segments)
    raise InvalidOption(
        f"the batch has {', '.join(sorted(batch))}, which do not say where documents start; "
        "pass document_starts (or segment_ids) to check_isolation"
    )


def as_numpy(value: object) -> npt.NDArray[np.generic]:
    """Any array on the host."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return np.asarray(value)


def number_runs(opens: Opens) -> Segments:
    """Segments 1..k from where they open, `[B, T]`.

    >>> number_runs(np.array([[True, False, True]]))
    array([[1, 1, 2]])
    """
    return np.cumsum(opens, axis=1)


def opens_from_positions(positions: npt.NDArray[np.generic]) -> Opens:
    """Where transformers sees a new document: a position that is not its neighbour's plus one."""
    opens = np.ones(positions.shape, dtype=np.bool_)
    opens[:, 1:] = np.diff(positions.astype(np.int64), axis=1) != 1
    return opens


def opens_from_bounds(bounds: npt.NDArray[np.generic], shape: tuple[int, int]) -> Opens | None:
    """Where the segments of a flattened batch open; None if the bounds are not those of it."""
    starts = bounds.astype(np.int64)
    ordered = starts.size >= 2 and starts[0] == 0 and (np.diff(starts) >= 0).all()
    if not ordered or starts[-1] != shape[0] * shape[1]:
        return None
    opens = np.zeros(shape[0] * shape[1] + 1, dtype=np.bool_)
    opens[starts] = True
    return opens[:-1].reshape(shape)


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


def _of_shape(value: object, shape: tuple[int, int], name: str) -> npt.NDArray[np.generic]:
    array = as_numpy(value)
    if array.shape != shape:
        raise InvalidBoundaries(
            f"{name} have shape {array.shape} but input_ids {shape}; they must be alike"
        )
    return array


def _from_starts(
    batch: Batch, document_starts: Sequence[npt.ArrayLike], shape: tuple[int, int]
) -> Segments:
    if len(document_starts) != shape[0]:
        raise InvalidBoundaries(
            f"document_starts are given for {len(document_starts)} rows but the batch has "
            f"{shape[0]}; give one list for each row"
        )
    lengths = _row_lengths(batch, shape)
    return Boundaries.of_rows(document_starts, lengths, width=shape[1]).segment_ids()


def _row_lengths(batch: Batch, shape: tuple[int, int]) -> list[int]:
    mask = batch.get("attention_mask")
    if mask is None or as_numpy(mask).shape != shape:
        return [shape[1]] * shape[0]
    return [int(count) for count in as_numpy(mask).astype(bool).sum(axis=1)]


def _from_segment_ids(batch: Batch, shape: tuple[int, int]) -> Segments | None:
    if batch.get("segment_ids") is None:
        return None
    return _of_shape(batch["segment_ids"], shape, "segment_ids").astype(np.int64)


def _from_seq_idx(batch: Batch, shape: tuple[int, int]) -> Segments | None:
    if batch.get("seq_idx") is None:
        return None
    return _of_shape(batch["seq_idx"], shape, "seq_idx").astype(np.int64) + 1


def _from_position_ids(batch: Batch, shape: tuple[int, int]) -> Segments | None:
    if batch.get("position_ids") is None:
        return None
    positions = text_positions(as_numpy(batch["position_ids"]), shape)
    return None if positions is None else number_runs(opens_from_positions(positions))


def text_positions(
    positions: npt.NDArray[np.generic], shape: tuple[int, int]
) -> npt.NDArray[np.generic] | None:
    """`[B, T]` positions; of mRoPE's four rows the first, of its three rows none."""
    if positions.ndim == 3:
        positions = positions[0] if positions.shape[0] == 4 else np.empty((0, 0))
    if (
        positions.ndim == 2
        and positions.shape[1] == shape[1]
        and positions.shape[0] in (1, shape[0])
    ):
        return np.broadcast_to(positions, shape)
    return None


def _from_bounds(batch: Batch, shape: tuple[int, int]) -> Segments | None:
    if batch.get("cu_seq_lens_q") is None:
        return None
    opens = opens_from_bounds(as_numpy(batch["cu_seq_lens_q"]), shape)
    return None if opens is None else number_runs(opens)
