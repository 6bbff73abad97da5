"""Batches: windows in arrays of one shape, with their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.labels import LabelOptions
from quire.stream.options import StreamConfig
from quire.stream.windows import Window

Row: TypeAlias = npt.NDArray[np.int32]


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
    """Turns windows into batches as the options say.

    The rules are those of `quire.labels` and `quire.boundaries`. Here they are applied to the few
    places where fragments meet instead of to every token, which is several times as fast.
    """

    def __init__(self, config: StreamConfig) -> None:
        data, model = config.data, config.model
        self._width = config.train.seq_len
        self._pad = model.pad_token_id or 0
        self._emits_positions = data.emit_position_ids
        self._labels = LabelOptions(
            mask_boundary_loss=data.mask_boundary_loss,
            train_on_eos=data.train_on_eos,
            eos_token_id=model.eos_token_id,
        )

    def make(self, windows: Sequence[Window | None], num_microbatches: int) -> Batch:
        """The batch of these rows; None is a row of padding."""
        input_ids = np.empty((len(windows), self._width), np.int32)
        labels = np.empty_like(input_ids)
        for window, ids, targets in zip(windows, input_ids, labels, strict=True):
            self._write(window or _NOTHING, ids, targets)
        if not self._labels.train_on_eos:
            labels[labels == self._labels.eos_token_id] = self._labels.ignore_index
        numbers, counts = _segments(windows, self._width)
        segments = numbers.repeat(counts)
        shape = (num_microbatches, len(windows) // num_microbatches, self._width)
        return Batch(
            input_ids=input_ids.reshape(shape),
            labels=labels.reshape(shape),
            attention_mask=(segments > 0).reshape(shape),
            segment_ids=segments.reshape(shape),
            position_ids=_positions(counts).reshape(shape) if self._emits_positions else None,
        )

    def _write(self, window: Window, ids: Row, targets: Row) -> None:
        """Tokens and labels of one row; the last token of a full window is a label alone."""
        tokens, length = window.tokens, len(window.tokens)
        ids[:length] = tokens[: self._width]
        ids[length:] = self._pad
        num_labels = max(length - 1, 0)
        targets[:num_labels] = tokens[1:]
        targets[num_labels:] = self._labels.ignore_index
        if self._labels.mask_boundary_loss:
            ends = list(accumulate(window.lengths[:-1], initial=0))[1:]
            targets[[end - 1 for end in ends]] = self._labels.ignore_index


def _segments(
    windows: Sequence[Window | None], width: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The number of every segment of the batch, 0 for padding, and the places that it has."""
    numbers: list[int] = []
    counts: list[int] = []
    for window in windows:
        lengths = () if window is None else window.lengths
        free = width - sum(lengths)
        numbers += range(1, len(lengths) + 1)
        counts += lengths
        if free < 0:  # the last token is a label alone
            counts[-1] -= 1
        elif free:
            numbers.append(0)
            counts.append(free)
    return np.array(numbers, np.int32), np.array(counts)


def _positions(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """The distance of every place from the start of its segment; padding is one of its own."""
    ends = counts.cumsum()
    starts = (ends - counts).astype(np.int32).repeat(counts)
    return np.subtract(_places(int(ends[-1])), starts, out=starts)


@lru_cache(maxsize=4)
def _places(count: int) -> npt.NDArray[np.int32]:
    """0, 1, …, made once for all batches of a shape; never written to."""
    return np.arange(count, dtype=np.int32)


_NOTHING = Window(np.zeros(0, np.int32), (), 0)
