"""Invalid boundaries, each with its whole message, and valid ones at the limits."""

from __future__ import annotations

import numpy as np
import pytest

from quire.boundaries import (
    Boundaries,
    check_starts,
    cu_seqlens,
    padded_cu_seqlens,
    position_ids,
    starts_from_cu_seqlens,
    starts_from_lengths,
    starts_from_position_ids,
    starts_from_segment_ids,
    starts_from_seq_idx,
    starts_from_tokens,
)
from quire.errors import InvalidBoundaries, InvalidOption

NO_INTEGERS = (
    f"{{}} have dtype float64, the first is {np.float64(1.5)!r}, but must be integers; cast them "
    "yourself, so that nothing is truncated silently"
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Boundaries.of_rows([[0, 2], [0, 5, 3]], [8, 8]),
            "row 1: document_starts[2] is 3 after 5, but starts increase; give each document one "
            "start, in order",
        ),
        (
            lambda: Boundaries.of_rows([[0, 2], [0, 8]], [9, 8]),
            "row 1: document_starts[1] is 8, but the row has 8 tokens; starts lie inside the row",
        ),
        (
            lambda: Boundaries.of_rows([[0, 2], [3]], [8, 8]),
            "row 1: document_starts begin with 3, but the first document of a row starts at 0; a "
            "continuation is a document of its own here",
        ),
        (
            lambda: Boundaries.of_rows([[0, 2], []], [8, 8]),
            "row 1: document_starts are empty, but the first document of a row starts at 0; a row "
            "of one document has [0]",
        ),
        (
            lambda: Boundaries.of_rows([[0], [0]], [1, 0]),
            "row 1 has 0 tokens, but a row holds at least one; leave empty rows out",
        ),
        (
            lambda: Boundaries.of_rows([[0]], [1, 2]),
            "1 lists of document_starts for 2 rows; give one list per row, and at least one row",
        ),
        (
            lambda: Boundaries.of_rows([[0], [0], [0]], [3, 5, 4], width=4),
            "row 1 needs 5 positions, but rows are 4 wide; cut the row or widen the batch",
        ),
        (
            lambda: Boundaries.of_rows([[[0]]], [1]),
            "row 0: document_starts have 2 dimensions, but a row has one list",
        ),
        (
            lambda: cu_seqlens([0], 2**31),
            "the batch has 2147483648 positions, but cu_seqlens are 32-bit; make it smaller",
        ),
        (
            lambda: starts_from_lengths([]),
            "lengths are empty, but a row holds at least one fragment",
        ),
        (
            lambda: starts_from_lengths([3, -1, 2]),
            "lengths[1] is -1, but a fragment holds at least one token; leave empty ones out",
        ),
        (
            lambda: starts_from_cu_seqlens([7]),
            "cu_seqlens have 1 value, but a row has a start and an end",
        ),
        (
            lambda: starts_from_segment_ids([0, 0]),
            "segment_ids contain only padding, but a row has at least one token",
        ),
        (
            lambda: starts_from_segment_ids([1, 3]),
            "segment_ids[1] is 3, but they count 1..k from left to right and are 0 on padding, at "
            "the right end only",
        ),
        (
            lambda: starts_from_seq_idx([0, 2], 2),
            "seq_idx[1] is 2, but it counts 0..k-1 from left to right",
        ),
        (
            lambda: starts_from_position_ids([0, 1, 3], 3),
            "position_ids[2] is 3, but each is 0 or one more than the one before it",
        ),
        (
            lambda: starts_from_position_ids([0, 1], 3),
            "position_ids have 2 values, but the row's length is 3; it has at least one token, and "
            "one value for each",
        ),
        (
            lambda: starts_from_seq_idx([0, 1], 0),
            "seq_idx have 2 values, but the row's length is 0; it has at least one token, and one "
            "value for each",
        ),
        (
            lambda: starts_from_tokens([], 2),
            "a row without tokens has no starts; leave empty rows out",
        ),
        (lambda: check_starts([0], 1.5), NO_INTEGERS.format("lengths of rows")),
        (lambda: Boundaries.of_rows([[0]], [1.5]), NO_INTEGERS.format("lengths of rows")),
        (lambda: Boundaries.of_rows([[1.5]], [1]), NO_INTEGERS.format("row 0: document_starts")),
        (lambda: starts_from_lengths([1.5]), NO_INTEGERS.format("lengths")),
        (lambda: starts_from_cu_seqlens([1.5]), NO_INTEGERS.format("cu_seqlens")),
        (lambda: starts_from_segment_ids([1.5]), NO_INTEGERS.format("segment_ids")),
        (lambda: starts_from_seq_idx([1.5], 1), NO_INTEGERS.format("seq_idx")),
        (lambda: starts_from_position_ids([1.5], 1), NO_INTEGERS.format("position_ids")),
        (lambda: starts_from_tokens([1.5], 2), NO_INTEGERS.format("tokens")),
    ],
)
def test_every_error_names_the_item_the_two_values_and_the_remedy(call, message):
    with pytest.raises(InvalidBoundaries) as raised:
        call()
    assert str(raised.value) == message


class Broken:
    """A tensor on a device raises this error when numpy reads it."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("on a device")


def test_values_that_numpy_cannot_read_are_rejected_with_the_reason():
    with pytest.raises(InvalidBoundaries) as raised:
        check_starts(Broken(), 3)
    assert str(raised.value) == "row 0: document_starts cannot be read as integers: on a device"


def test_a_multiple_below_one_is_rejected_with_the_value():
    with pytest.raises(InvalidOption) as raised:
        padded_cu_seqlens([0], 3, 0)
    assert str(raised.value) == "fragments cannot be padded to a multiple of 0; give >= 1"


@pytest.mark.parametrize("values", [[2, 3], [-1, 0], [-1], [1]])
def test_positions_begin_with_zero(values):
    with pytest.raises(InvalidBoundaries, match=r"position_ids\[0\]"):
        starts_from_position_ids(values, len(values))


@pytest.mark.parametrize("values", [[1], [-1, 0], [-2, -1], [-1]])
def test_sequence_numbers_begin_with_zero(values):
    with pytest.raises(InvalidBoundaries, match=r"seq_idx\[0\]"):
        starts_from_seq_idx(values, len(values))


# What lies just inside


def test_as_many_positions_as_32_bits_can_count_are_accepted():
    assert cu_seqlens([0, 5], length=2**31 - 1).tolist() == [0, 5, 2**31 - 1]


def test_positions_of_a_batch_too_large_to_be_cached_are_the_same():
    width = (1 << 20) + 3
    assert np.array_equal(position_ids([0, 2], width), [0, 1, *range(width - 2)])


def test_starts_of_any_integer_type_are_checked_and_come_back_in_64_bits():
    for dtype in (np.uint8, np.int16, np.uint32, np.uint64):
        starts = check_starts(np.array([0, 2], dtype), 4)
        assert (starts.dtype, starts.tolist()) == (np.int64, [0, 2])


def test_the_segments_of_a_batch_are_counted_in_64_bit_integers():
    batch = Boundaries.of_rows([[0, 2], [0]], [4, 3])
    assert (batch.starts.tolist(), batch.numbers.tolist()) == ([0, 2, 4, 7], [1, 2, 1, 0])
    assert (batch.starts.dtype, batch.numbers.dtype) == (np.int64, np.int64)
    assert (batch.shape, batch.size, batch.lengths.tolist()) == ((2, 4), 8, [2, 2, 3, 1])


def test_boundaries_found_from_tokens_have_rows_and_numbers():
    tokens = np.array([[5, 2, 6], [2, 7, 2]])
    after = Boundaries.of_tokens(tokens, 2)
    assert after.shape == (2, 3)
    assert (after.starts.tolist(), after.numbers.tolist()) == ([0, 2, 3, 4], [1, 2, 1, 2])
    at = Boundaries.of_tokens(tokens, 2, ends=False)
    assert (at.starts.tolist(), at.numbers.tolist()) == ([0, 1, 3, 5], [1, 2, 1, 2])


@pytest.mark.parametrize(
    ("starts", "lengths", "multiple", "dense"),
    [
        ([[0, 2], [0]], [4, 4], 1, True),
        ([[0, 2], [0]], [4, 3], 1, True),
        ([[0, 3], [0]], [5, 2], 1, True),
        ([[0], [0, 3]], [2, 5], 1, True),
        ([[0, 3]], [5], 4, False),
        ([[0, 4]], [8], 4, True),
        ([[0, 4]], [7], 4, True),
    ],
)
def test_a_batch_is_dense_if_padding_is_only_at_right_ends(starts, lengths, multiple, dense):
    assert Boundaries.of_rows(starts, lengths, multiple=multiple).is_dense is dense
