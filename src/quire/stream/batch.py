"""Batches: windows in arrays of one shape, with their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from quire.boundaries.batch import Boundaries
from quire.labels import LabelOptions, causal_labels
from quire.stream.options import StreamConfig
from quire.stream.windows import Window


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """Arrays ``[A, B, T]``; shapes and types never change within a stream."""

    input_ids: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    """Shifted: the label of a place is what stands behind it, -100 where nothing is learnt."""
    attention_mask: npt.NDArray[np.bool_]
    """True on tokens, False on padding."""
    segment_ids: npt.NDArray[np.int32]
    """1..k within a row, 0 on padding."""
    position_ids: npt.NDArray[np.int32] | None = None
    """Places within fragments, if ``data.emit_position_ids``."""

    def to_dict(self) -> dict[str, npt.NDArray[np.generic]]:
        """The arrays by name, without what is not emitted."""
        arrays = {name: getattr(self, name) for name in self.__slots__}
        return {name: array for name, array in arrays.items() if array is not None}


class BatchMaker:
    """Turns windows into batches as the options say."""

    def __init__(self, config: StreamConfig) -> None:
        data, model = config.data, config.model
        self._size = config.window_size
        self._pad = model.pad_token_id or 0
        self._emits_positions = data.emit_position_ids
        self._labels = LabelOptions(
            mask_boundary_loss=data.mask_boundary_loss,
            train_on_eos=data.train_on_eos,
            eos_token_id=model.eos_token_id,
        )

    def make(self, windows: Sequence[Window | None], num_microbatches: int) -> Batch:
        """The batch of these rows; None is a row of padding."""
        tokens = np.full((len(windows), self._size), self._pad, np.int32)
        segments = np.zeros((len(windows), self._size), np.int32)
        filled = [row for row, window in enumerate(windows) if window is not None]
        present = [window for window in windows if window is not None]
        for row, window in zip(filled, present, strict=True):
            tokens[row, : len(window.tokens)] = window.tokens
        bounds = _boundaries(present, self._size) if present else None
        if bounds is not None:
            segments[filled] = bounds.segment_ids()
        labels = causal_labels(tokens, segments, self._labels)[:, 1:].astype(np.int32)
        shape = (num_microbatches, len(windows) // num_microbatches, self._size - 1)
        inputs = np.ascontiguousarray(segments[:, :-1])
        return Batch(
            input_ids=np.ascontiguousarray(tokens[:, :-1]).reshape(shape),
            labels=labels.reshape(shape),
            attention_mask=(inputs > 0).reshape(shape),
            segment_ids=inputs.reshape(shape),
            position_ids=self._positions(len(windows), filled, bounds).reshape(shape)
            if self._emits_positions
            else None,
        )

    def _positions(
        self, num_rows: int, filled: Sequence[int], bounds: Boundaries | None
    ) -> npt.NDArray[np.int32]:
        """Places within fragments; a row of padding is one segment."""
        positions = np.empty((num_rows, self._size), np.int32)
        positions[:] = np.arange(self._size)
        if bounds is not None:
            positions[filled] = bounds.position_ids()
        return np.ascontiguousarray(positions[:, :-1])


def _boundaries(windows: Sequence[Window], size: int) -> Boundaries:
    starts = [list(accumulate(window.lengths[:-1], initial=0)) for window in windows]
    return Boundaries.of_rows(starts, [len(window.tokens) for window in windows], width=size)
