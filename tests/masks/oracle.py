"""The mask, said as plainly as it can be: three loops and one condition."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st


def visible(segment_ids, window=None) -> np.ndarray:
    """True where a query sees a key, [B, T, T]."""
    segments = np.asarray(segment_ids)
    rows, length = segments.shape
    mask = np.zeros((rows, length, length), dtype=bool)
    for row in range(rows):
        for query in range(length):
            for key in range(query + 1):
                same = segments[row, query] == segments[row, key]
                near = window is None or query - key < window
                mask[row, query, key] = same and near
    return mask


def segment_row(lengths: list[int], length: int) -> list[int]:
    """Segments 1..k of the given lengths, then padding, cut to the row's length."""
    row = [number for number, size in enumerate(lengths, start=1) for _ in range(size)]
    return (row + [0] * length)[:length]


@st.composite
def segment_batches(draw, max_length=40, max_rows=3):
    length = draw(st.integers(1, max_length))
    sizes = st.lists(st.integers(1, max_length), max_size=8)
    rows = draw(st.lists(sizes, min_size=1, max_size=max_rows))
    return np.array([segment_row(lengths, length) for lengths in rows])


windows = st.none() | st.integers(1, 12)
