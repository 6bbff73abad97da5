"""Batches: windows as arrays of one shape, with their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.boundaries import Boundaries
from quire.labels import DEFAULT as LABELS
from quire.markup import block, figures, row_bar
from quire.stream.labels import unmarked
from quire.stream.options import StreamOptions
from quire.stream.packers import Window

Row: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, repr=False)
class Batch:
    """Arrays ``[A, B, T]``; shapes and types never change within a stream."""

    input_ids: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    """Shifted: the label of a position is the token after it, -100 where nothing is learned."""
    attention_mask: npt.NDArray[np.bool_]
    """True on tokens, False on padding."""
    segment_ids: npt.NDArray[np.int32]
    """1..k within a row, 0 on padding."""
    position_ids: npt.NDArray[np.int32] | None = None
    """Positions within fragments, if ``emit_position_ids``."""

    def __repr__(self) -> str:
        arrays = self.to_dict().items()
        shapes = (f"{name}={array.dtype}{list(array.shape)}" for name, array in arrays)
        return f"Batch({', '.join(shapes)})"

    def _repr_html_(self) -> str:
        about = {name: f"{a.dtype} {list(a.shape)}" for name, a in self.to_dict().items()}
        targets = int((self.labels != LABELS.ignore_index).sum())
        places = int(self.attention_mask.size)
        about |= {
            "tokens": f"{int(self.attention_mask.sum()):,} of {places:,} places",
            "trained": f"{targets:,}",
        }
        segments = self.segment_ids.reshape(-1, self.segment_ids.shape[-1])
        return block([figures("Batch", about), *map(_bar, segments[:8])])

    def to_dict(self) -> dict[str, npt.NDArray[np.generic]]:
        """The arrays by name, without those that are not emitted."""
        arrays = {name: getattr(self, name) for name in self.__slots__}
        return {name: array for name, array in arrays.items() if array is not None}


def _bar(segments: Row) -> str:
    edges = np.flatnonzero(np.diff(segments, prepend=0, append=0))
    pairs = pairwise(edges.tolist())
    spans = [(a, b, f"tokens {a}-{b - 1}") for a, b in pairs if segments[a]]
    return row_bar(spans, len(segments))


class BatchMaker:
    """Turns windows into batches.

    Labels follow the rules of `quire.labels`, applied only where fragments meet instead of to every
    token, which is several times faster.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options, self._width = options, options.max_length
        self._pad = options.pad_token_id or 0

    def make(self, windows: Sequence[Window | None], num_microbatches: int) -> Batch:
        """The batch of these rows; None is a row of padding."""
        input_ids = np.empty((len(windows), self._width), np.int32)
        labels = np.empty_like(input_ids)
        for window, ids, targets in zip(windows, input_ids, labels, strict=True):
            self._write(window or _EMPTY, ids, targets)
        if not self._options.train_on_eos:
            labels[labels == self._options.eos_token_id] = LABELS.ignore_index
        boundaries = _boundaries(windows, self._width)
        segments = boundaries.segment_ids()
        shape = (num_microbatches, len(windows) // num_microbatches, self._width)
        positions = None
        if self._options.emit_position_ids:
            positions = boundaries.position_ids().astype(np.int32).reshape(shape)
        return Batch(
            input_ids=input_ids.reshape(shape),
            labels=labels.reshape(shape),
            attention_mask=(segments > 0).reshape(shape),
            segment_ids=segments.reshape(shape),
            position_ids=positions,
        )

    def _write(self, window: Window, ids: Row, targets: Row) -> None:
        """Write tokens and labels of one row; the last token of a full window is only a label."""
        tokens, length = window.tokens, len(window.tokens)
        ids[:length] = tokens[: self._width]
        if self._options.trains_answers:
            ids[:length] = unmarked(ids[:length])
            tokens = np.where(tokens < 0, LABELS.ignore_index, tokens)
        ids[length:] = self._pad
        num_labels = max(length - 1, 0)
        targets[:num_labels] = tokens[1:]
        targets[num_labels:] = LABELS.ignore_index
        if self._options.mask_boundary_loss:
            ends = list(accumulate(window.lengths[:-1], initial=0))[1:]
            targets[[end - 1 for end in ends]] = LABELS.ignore_index


def _boundaries(windows: Sequence[Window | None], width: int) -> Boundaries:
    """The segments of a batch; its windows come from a packer, so they need no checks."""
    numbers: list[int] = []
    lengths: list[int] = []
    for window in windows:
        fragments = () if window is None else window.lengths
        free = width - sum(fragments)
        numbers += range(1, len(fragments) + 1)
        lengths += fragments
        if free < 0:  # the last token is only a label
            lengths[-1] -= 1
        elif free:
            numbers.append(0)
            lengths.append(free)
    starts = list(accumulate(lengths, initial=0))[:-1]
    return Boundaries(
        shape=(len(windows), width), starts=np.array(starts), numbers=np.array(numbers)
    )


_EMPTY = Window(np.zeros(0, np.int32), (), 0, 0)
