"""The kernels run on no CPU, so their arguments are carried out by hand."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from tests.masks.oracle import segment_batches, visible, windows

from quire.masks.varlen import kernel_arguments, varlen_arguments


def seen_by_the_kernel(arguments, shape) -> np.ndarray:
    """What flash attention's documentation says that it lets each query see, [B, T, T]."""
    rows, length = shape
    flat = np.zeros((rows * length, rows * length), dtype=bool)
    left, right = arguments["window_size"]
    bounds = arguments["cu_seqlens_q"]
    for start, stop in itertools.pairwise(bounds):
        for query in range(start, stop):
            lowest = start if left < 0 else max(start, query - left)
            highest = min(query + right, stop - 1)
            flat[query, lowest : highest + 1] = True
    blocks = flat.reshape(rows, length, rows, length)
    for row in range(rows):
        assert not np.delete(blocks[row], row, axis=1).any()  # no row sees another
    return np.stack([blocks[row, :, row] for row in range(rows)])


@settings(deadline=None)
@given(segment_batches(), windows)
def test_a_kernel_called_with_our_arguments_sees_what_the_oracle_sees(segments, window):
    arguments = kernel_arguments(segments, window)
    found = seen_by_the_kernel(arguments, segments.shape)
    assert np.array_equal(found, visible(segments, window))
    assert arguments["causal"] is True


@settings(deadline=None)
@given(segment_batches())
def test_the_arguments_for_transformers_have_the_same_bounds(segments):
    ours, kernel = varlen_arguments(segments), kernel_arguments(segments)
    assert list(ours) == ["cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"]
    for theirs, name in zip(ours, list(kernel), strict=False):
        assert np.array_equal(ours[theirs], kernel[name])
    assert ours["cu_seq_lens_q"].dtype == np.int32
    assert ours["max_length_q"] == np.diff(ours["cu_seq_lens_q"]).max()
    assert isinstance(ours["max_length_q"], int)


def test_two_rows_are_one_sequence_and_padding_ends_each():
    arguments = varlen_arguments([[1, 1, 2, 0], [1, 1, 1, 1]])
    assert arguments["cu_seq_lens_k"].tolist() == [0, 2, 3, 4, 8]
    assert arguments["max_length_k"] == 4


def test_a_window_of_one_leaves_the_kernel_no_key_to_the_left():
    assert kernel_arguments([[1, 1]], window=1)["window_size"] == (0, 0)
    assert kernel_arguments([[1, 1]])["window_size"] == (-1, 0)
