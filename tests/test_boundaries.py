from __future__ import annotations

import subprocess
import sys
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.boundaries import (
    Boundaries,
    check_starts,
    cu_seqlens,
    fitting_length,
    lengths_from_starts,
    padded_cu_seqlens,
    position_ids,
    segment_ids,
    seq_idx,
    starts_from_cu_seqlens,
    starts_from_lengths,
    starts_from_position_ids,
    starts_from_segment_ids,
    starts_from_seq_idx,
    starts_from_tokens,
)
from quire.errors import InvalidBoundaries, InvalidOption

rows = st.lists(st.integers(1, 9), min_size=1, max_size=8)
batches = st.lists(rows, min_size=1, max_size=5)


# Literal cases


def test_the_three_documents_of_a_hundred_tokens_start_at_0_50_and_80():
    assert starts_from_lengths([50, 30, 20]).tolist() == [0, 50, 80]
    positions = position_ids([0, 50, 80], length=100)
    assert positions.tolist() == [*range(50), *range(30), *range(20)]


def test_padding_is_a_segment_of_its_own_in_every_form():
    starts, length, width = [0, 3], 5, 7
    assert position_ids(starts, length, width).tolist() == [0, 1, 2, 0, 1, 0, 1]
    assert segment_ids(starts, length, width).tolist() == [1, 1, 1, 2, 2, 0, 0]
    assert seq_idx(starts, length, width).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert cu_seqlens(starts, length, width).tolist() == [0, 3, 5, 7]


def test_a_batch_counts_segments_within_each_row_and_cu_seqlens_through_all_of_them():
    batch = Boundaries.of_rows([[0, 2], [0], [0, 1, 2]], [4, 2, 3])
    assert batch.segment_ids().tolist() == [[1, 1, 2, 2], [1, 1, 0, 0], [1, 2, 3, 0]]
    assert batch.seq_idx().tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 2, 3]]
    assert batch.position_ids().tolist() == [[0, 1, 0, 1], [0, 1, 0, 1], [0, 0, 0, 0]]
    assert batch.cu_seqlens().tolist() == [0, 2, 4, 6, 8, 9, 10, 11, 12]
    assert batch.true_cu_seqlens().tolist() == [0, 2, 4, 6, 7, 8, 9]
    assert batch.padded_cu_seqlens().tolist() == [0, 2, 4, 8, 9, 10, 12]
    assert batch.max_length == 2


def test_fragments_padded_inside_a_row_keep_their_true_lengths_beside_the_padded_ones():
    batch = Boundaries.of_rows([[0, 3], [0]], [8, 4], multiple=4)
    assert batch.segment_ids().tolist() == [
        [1, 1, 1, 0, 2, 2, 2, 2, 2, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert batch.position_ids()[0].tolist() == [0, 1, 2, 0, 0, 1, 2, 3, 4, 0, 1, 2]
    assert batch.padded_cu_seqlens().tolist() == [0, 4, 12, 24]
    assert batch.true_cu_seqlens().tolist() == [0, 3, 8, 12]
    assert padded_cu_seqlens([0, 3], length=8, multiple=4).tolist() == [0, 4, 12]


def test_the_dtypes_are_those_that_models_and_kernels_expect():
    assert position_ids([0], 3).dtype == np.int64
    for form in (cu_seqlens, segment_ids, seq_idx):
        assert form([0], 3).dtype == np.int32


def test_tokens_that_end_a_document_open_the_next_and_tokens_that_start_one_open_it():
    assert starts_from_tokens([5, 2, 6, 2, 2], 2).tolist() == [0, 2, 4]
    assert starts_from_tokens([5, 2, 6, 2, 2], 2, ends=False).tolist() == [0, 1, 3, 4]
    assert starts_from_tokens([5, 6], 2).tolist() == [0]


def test_a_cut_at_a_width_counts_the_padding_between_fragments():
    assert fitting_length([0, 3], 9, width=5) == 5
    assert fitting_length([0, 3], 9, width=4, multiple=4) == 3
    assert fitting_length([0, 3], 9, width=99, multiple=4) == 9


# Properties, against loops that say the rule in the plainest way


def naive(lengths_of_rows: list[list[int]], multiple: int) -> dict[str, list[list[int]]]:
    width = max(sum(-(-n // multiple) * multiple for n in row) for row in lengths_of_rows)
    forms: dict[str, list[list[int]]] = {"position_ids": [], "segment_ids": [], "seq_idx": []}
    for row in lengths_of_rows:
        positions: list[int] = []
        segments: list[int] = []
        index: list[int] = []
        pieces = [piece for n in row for piece in ((n, True), (-n % multiple, False))]
        used = sum(n for n, _ in pieces)
        last, _ = pieces.pop()
        pieces.append((last + width - used, False))
        num_fragments = num_segments = 0
        for size, is_fragment in pieces:
            num_fragments += is_fragment
            positions += range(size)
            segments += [num_fragments if is_fragment else 0] * size
            index += [num_segments] * size
            num_segments += size > 0
        forms["position_ids"].append(positions)
        forms["segment_ids"].append(segments)
        forms["seq_idx"].append(index)
    return forms


@given(batches, st.integers(1, 5))
def test_all_forms_of_a_batch_equal_the_naive_ones(lengths_of_rows, multiple):
    starts = [starts_from_lengths(row) for row in lengths_of_rows]
    batch = Boundaries.of_rows(starts, [sum(row) for row in lengths_of_rows], multiple=multiple)
    for name, expected in naive(lengths_of_rows, multiple).items():
        assert getattr(batch, name)().tolist() == expected, name
    restarts = np.flatnonzero(batch.position_ids().ravel() == 0)
    assert batch.cu_seqlens().tolist() == [*restarts.tolist(), batch.size]
    assert np.diff(batch.true_cu_seqlens()).tolist() == list(chain(*lengths_of_rows))
    token = batch.segment_ids() > 0
    assert token.sum() == sum(map(sum, lengths_of_rows))
    if multiple > 1:
        assert not (batch.padded_cu_seqlens() % multiple).any()


@given(rows, st.integers(0, 5))
def test_every_form_converts_back_to_the_starts(lengths, padding):
    starts = starts_from_lengths(lengths)
    length = sum(lengths)
    width = length + padding
    same = starts.tolist()
    assert lengths_from_starts(starts, length).tolist() == lengths
    back, end = starts_from_cu_seqlens(cu_seqlens(starts, length))
    assert (back.tolist(), end) == (same, length)
    back, end = starts_from_segment_ids(segment_ids(starts, length, width))
    assert (back.tolist(), end) == (same, length)
    assert starts_from_seq_idx(seq_idx(starts, length, width), length).tolist() == same
    assert starts_from_position_ids(position_ids(starts, length, width), length).tolist() == same


@given(rows)
def test_starts_are_found_from_tokens_when_each_document_ends_or_starts_with_one(lengths):
    starts = starts_from_lengths(lengths)
    tokens = np.full(sum(lengths), 7)
    tokens[np.cumsum(lengths) - 1] = 2
    assert starts_from_tokens(tokens, 2).tolist() == starts.tolist()
    tokens[:] = 7
    tokens[starts] = 1
    assert starts_from_tokens(tokens, 1, ends=False).tolist() == starts.tolist()


@given(rows, st.integers(1, 80), st.integers(1, 5))
def test_a_cut_row_fits_and_one_token_more_does_not(lengths, width, multiple):
    width = -(-width // multiple) * multiple
    starts = starts_from_lengths(lengths)
    kept = fitting_length(starts, sum(lengths), width, multiple)

    def needed(length: int) -> int:
        return Boundaries.of_rows([starts[starts < length]], [length], multiple=multiple).shape[1]

    assert kept >= 1
    assert needed(kept) <= width
    assert kept == sum(lengths) or needed(kept + 1) > width


@given(rows, st.data())
def test_any_damage_to_valid_starts_is_rejected(lengths, data):
    """Fault 16: unsorted, repeated, out of range or not from zero; never repaired."""
    starts = starts_from_lengths(lengths).tolist()
    length = sum(lengths)
    place = data.draw(st.integers(0, len(starts) - 1))
    bad = data.draw(st.integers(-3, length + 3))
    damaged = [*starts[:place], bad, *starts[place + 1 :]]
    valid = damaged[0] == 0 and all(a < b for a, b in pairwise(damaged)) and damaged[-1] < length
    if valid:
        assert check_starts(damaged, length).tolist() == damaged
    else:
        with pytest.raises(InvalidBoundaries, match="row 0"):
            check_starts(damaged, length)


# Refusals


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([0, 5, 3], r"row 1: document_starts\[2\] is 3 after 5, but starts increase"),
        ([0, 5, 5], r"row 1: document_starts\[2\] is 5 after 5, but starts increase"),
        ([0, 8], r"row 1: document_starts\[1\] is 8, but the row has 8 tokens"),
        ([0, 99], r"row 1: document_starts\[1\] is 99, but the row has 8 tokens"),
        ([0, -1], r"row 1: document_starts\[1\] is -1 after 0"),
        ([3, 5], "row 1: document_starts begin with 3, but the first .* starts at 0"),
        ([-1, 5], "row 1: document_starts begin with -1"),
        ([], "row 1: document_starts are empty"),
        ([0.0, 3.0], "row 1: document_starts have dtype float64, the first is .*0.0.*integers"),
        ([False, True], "row 1: document_starts have dtype bool"),
        (["0", "3"], "row 1: document_starts have dtype <U1"),
        ([[0, 3]], "row 1: document_starts have 2 dimensions"),
        (0, "row 1: document_starts have 0 dimensions"),
        ([[0], [0, 3]], "row 1: document_starts cannot be read as integers"),
        (None, "row 1: document_starts have 0 dimensions"),
    ],
)
def test_bad_starts_are_named_by_row_and_value(starts, message):
    with pytest.raises(InvalidBoundaries, match=message):
        Boundaries.of_rows([[0, 2], starts, [0]], [8, 8, 8])


def test_the_first_start_of_a_row_may_be_below_the_last_of_the_row_before():
    assert Boundaries.of_rows([[0, 7], [0, 2]], [8, 8]).numbers.tolist() == [1, 2, 1, 2]


def test_starts_of_any_integer_type_are_the_same():
    for dtype in (np.uint8, np.int16, np.int32, np.uint64):
        assert position_ids(np.array([0, 2], dtype=dtype), 4).tolist() == [0, 1, 0, 1]


def test_the_callers_starts_are_not_modified():
    starts = np.array([0, 3])
    Boundaries.of_rows([starts], [5], width=9, multiple=2).position_ids()
    assert starts.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_starts([0], 0), "row 0 has 0 tokens"),
        (lambda: check_starts([0], 2.5), "lengths of rows have dtype float64"),
        (lambda: Boundaries.of_rows([], []), "0 lists of document_starts for 0 rows"),
        (lambda: Boundaries.of_rows([[0]], [1, 2]), "1 lists of document_starts for 2 rows"),
        (lambda: Boundaries.of_rows([[0], [0]], [3, 5], width=4), "row 1 needs 5 positions, .* 4"),
        (lambda: starts_from_lengths([]), "lengths are empty"),
        (lambda: starts_from_lengths([3, 0]), r"lengths\[1\] is 0"),
        (lambda: starts_from_cu_seqlens([0]), "cu_seqlens have 1 value"),
        (lambda: starts_from_cu_seqlens([0, 4, 3]), r"document_starts\[1\] is 4, .* 3 tokens"),
        (lambda: starts_from_segment_ids([0, 0]), "only padding"),
        (lambda: starts_from_segment_ids([1, 0, 2]), r"segment_ids\[1\] is 0"),
        (lambda: starts_from_segment_ids([1, 3]), r"segment_ids\[1\] is 3"),
        (lambda: starts_from_segment_ids([2, 2]), r"segment_ids\[0\] is 2"),
        (lambda: starts_from_segment_ids([1, 2, 1]), r"segment_ids\[2\] is 1"),
        (lambda: starts_from_seq_idx([0, 2], 2), r"seq_idx\[1\] is 2"),
        (lambda: starts_from_seq_idx([0], 2), "seq_idx have 1 value, but the row's length is 2"),
        (lambda: starts_from_position_ids([0, 1, 3], 3), r"position_ids\[2\] is 3"),
        (lambda: starts_from_position_ids([1, 2], 2), r"position_ids\[0\] is 1"),
        (lambda: starts_from_tokens([], 2), "a row without tokens"),
    ],
)
def test_forms_that_cannot_be_boundaries_are_rejected(call, message):
    with pytest.raises(InvalidBoundaries, match=message):
        call()


@pytest.mark.parametrize("multiple", [0, -4, True, 2.0])
def test_a_multiple_below_one_is_rejected(multiple):
    with pytest.raises(InvalidOption, match="multiple of"):
        padded_cu_seqlens([0], 3, multiple)


def test_a_numpy_integer_is_accepted_as_multiple():
    assert padded_cu_seqlens([0], 3, np.int32(4)).tolist() == padded_cu_seqlens([0], 3, 4).tolist()


def test_bounds_beyond_32_bits_are_rejected_rather_than_wrapped():
    with pytest.raises(InvalidBoundaries, match=r"2147483648 positions, .* 32-bit"):
        cu_seqlens([0, 5], length=2**31)


def test_boundaries_need_only_numpy():
    program = (
        "import sys, quire.boundaries; "
        "print(sorted({'torch', 'transformers', 'datasets', 'jax'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert result.stdout.strip() == b"[]"
