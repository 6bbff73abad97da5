from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

import quire
from quire.errors import InvalidLengths
from quire.plan.lengths import as_lengths, narrowest_signed

EXPECTED = quire.make_plan([5, 0, 7, 3], 8)


@pytest.mark.parametrize(
    "lengths",
    [
        (5, 0, 7, 3),
        range(0),
        np.array([5, 0, 7, 3], np.int8),
        np.array([5, 0, 7, 3], ">i4"),
        np.array([9, 5, 9, 0, 9, 7, 9, 3])[1::2],
        pa.array([5, 0, 7, 3]),
        pa.array([9, 5, 0, 7, 3, 9])[1:5],
        pa.chunked_array([[5, 0], [], [7, 3]]),
        torch.tensor([5, 0, 7, 3]),
        torch.tensor([5, 0, 7, 3], dtype=torch.int32),
    ],
    ids=lambda value: type(value).__name__,
)
def test_lists_numpy_arrow_and_torch_give_the_same_plan(lengths):
    plan = quire.make_plan(lengths, 8)
    assert plan == (EXPECTED if len(lengths) else quire.make_plan([], 8))


CAST = "round or cast the lengths yourself, so nothing is cut silently"
CHECK = "check how the lengths were computed"
FLAT = "one number per document is needed; pass a flat list or array"
READABLE = "pass a list, or a numpy, Arrow or CPU torch array of integers"
MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, -1], f"document 1 has length -1 but lengths start at 0; {CHECK}"),
        ([3, 2.5], f"document 0 has length 3.0 but a length is an integer; {CAST}"),
        (
            np.array([3, float("nan")]),
            f"document 0 has length 3.0 but a length is an integer; {CAST}",
        ),
        ([float("nan")], f"document 0 has length nan but a length is an integer; {CAST}"),
        ([True, False], f"document 0 has length True but a length is an integer; {CAST}"),
        ([3, None], f"document 1 has length None but a length is an integer; {CAST}"),
        (["3", "4"], f"document 0 has length '3' but a length is an integer; {CAST}"),
        ([[1, 2], [3, 4]], f"lengths have 2 dimensions but {FLAT}"),
        (np.zeros((0, 2), int), f"lengths have 2 dimensions but {FLAT}"),
        (5, f"lengths have 0 dimensions but {FLAT}"),
        (
            [2**64],
            f"document 0 has length 18446744073709551616 but lengths are from 0 to {MOST}; {CHECK}",
        ),
        (
            [1, -(2**70)],
            f"document 1 has length {-(2**70)} but lengths are from 0 to {MOST}; {CHECK}",
        ),
        (
            [1, 2**63, 2**65],
            f"document 1 has length {2**63} but lengths are from 0 to {MOST}; {CHECK}",
        ),
        (
            np.array([1, 2**63], np.uint64),
            f"document 1 has length {2**63} but the longest possible is {MOST}; {CHECK}",
        ),
        (
            [2**62] * 4,
            f"the lengths sum to 1.84e+19 tokens but at most 4.61e+18 can be planned; {CHECK}",
        ),
        (
            pa.array([1, None, 2, None]),
            "lengths hold 2 nulls, the first at document 1; fill or filter them before planning",
        ),
        (pa.array([1.5]), f"document 0 has length 1.5 but a length is an integer; {CAST}"),
        (torch.tensor([1.5]), f"document 0 has length 1.5 but a length is an integer; {CAST}"),
        (
            np.array([0, MOST], dtype=object),
            "lengths have dtype object but integers are needed",
        ),
    ],
)
def test_invalid_lengths_are_rejected_by_document(lengths, message):
    with pytest.raises(InvalidLengths) as caught:
        quire.make_plan(lengths, 8)
    assert str(caught.value) == message


def test_lengths_that_numpy_cannot_read_are_rejected_with_its_reason():
    with pytest.raises(InvalidLengths) as caught:
        quire.make_plan([1, [2, 3]], 8)
    reason = caught.value.__cause__
    assert isinstance(reason, ValueError)
    message = f"lengths of type list cannot be read as integers: {reason}; {READABLE}"
    assert str(caught.value) == message


def test_the_largest_sum_of_lengths_that_is_planned_is_exact():
    assert as_lengths([2**61, 2**61]).tolist() == [2**61, 2**61]
    assert as_lengths(np.array([2**62], np.uint64)).tolist() == [2**62]


def test_a_length_of_63_bits_is_rejected_only_for_the_sum():
    with pytest.raises(InvalidLengths, match="sum to"):
        as_lengths(np.array([MOST], np.uint64))


def test_the_callers_array_is_neither_changed_nor_shared():
    lengths = np.array([3, 4], np.uint16)
    plan = quire.make_plan(lengths, 8)
    assert lengths.flags.writeable
    lengths[:] = 8
    assert plan.stops.tolist() == [4, 3]


@pytest.mark.parametrize(
    ("largest", "expected"), [(65_535, np.uint16), (65_536, np.uint32), (2**32, np.uint64)]
)
def test_the_narrowest_type_holds_the_largest_length(largest, expected):
    assert as_lengths([1, largest]).dtype == expected


def test_lengths_are_read_only_and_empty_ones_are_narrow():
    with pytest.raises(ValueError, match="read-only"):
        as_lengths([3])[0] = 1
    for nothing in ([], np.zeros(0), range(0)):
        assert (as_lengths(nothing).tolist(), as_lengths(nothing).dtype) == ([], np.uint16)


@pytest.mark.parametrize(
    ("largest", "expected"), [(0, np.int32), (2**31 - 1, np.int32), (2**31, np.int64)]
)
def test_plan_arrays_have_32_bits_if_those_hold_the_largest_value(largest, expected):
    assert narrowest_signed(largest) is expected
