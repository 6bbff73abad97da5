from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from tests.masks.oracle import segment_batches, visible, windows

from quire.errors import InvalidBoundaries, InvalidOption
from quire.masks.visibility import first_visible


@settings(deadline=None)
@given(segment_batches(), windows)
def test_the_first_visible_key_equals_the_oracle(segments, window):
    assert np.array_equal(first_visible(segments, window), visible(segments, window).argmax(-1))


def test_padding_on_the_left_is_a_segment_of_its_own():
    assert first_visible([[0, 0, 1, 1, 0]]).tolist() == [[0, 0, 2, 2, 4]]


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([[1, 2, 1]], "row 0: segment 1 at token 2 is out of order"),
        ([[1, 1, 1], [1, 0, 1]], "row 1: segment 1 at token 2 is out of order"),
        ([[2, 1]], "row 0: segment 1 at token 1 is out of order"),
        ([[1, -1]], "row 0: segment -1 at token 1 is out of order"),
        ([1, 1], r"shape \(2,\); a mask needs \[rows, tokens\]"),
        ([[]], r"shape \(1, 0\)"),
        ([[1.0, 2.0]], "dtype float64; they must be integers"),
        ([[True, False]], "dtype bool; they must be integers"),
    ],
)
def test_ambiguous_segments_are_rejected(segments, message):
    with pytest.raises(InvalidBoundaries, match=message):
        first_visible(segments)


@pytest.mark.parametrize("window", [0, -1, 1.5, True])
def test_a_window_that_hides_the_token_itself_is_rejected(window):
    with pytest.raises(InvalidOption, match="a token attends at least to itself"):
        first_visible([[1]], window)
