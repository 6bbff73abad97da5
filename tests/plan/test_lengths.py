from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

import quire
from quire.errors import InvalidLengths
from quire.plan.lengths import as_lengths

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


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([3, -1], "document 1 has length -1 but lengths start at 0"),
        ([3, 2.5], "document 0 has length 3.0 but a length is an integer"),
        ([3, float("nan")], "a length is an integer"),
        (np.array([1.0, 2.0]), "document 0 has length 1.0 but a length is an integer"),
        ([True, False], "document 0 has length True"),
        ([3, None], "document 1 has length None"),
        (["3", "4"], "document 0 has length '3'"),
        ([[1, 2], [3, 4]], "2 dimensions"),
        (5, "0 dimensions"),
        ([1, [2, 3]], "cannot be read as integers"),
        ([2**64], "document 0 has length 18446744073709551616 but lengths are from 0 to"),
        ([-(2**70)], "lengths are from 0 to"),
        (np.array([2**63], np.uint64), "the longest possible"),
        ([2**62] * 4, r"sum to 1\.84e\+19 tokens but at most 4\.61e\+18"),
        (pa.array([1, None, 2]), "1 nulls, the first at document 1"),
        (pa.array([1.5]), "a length is an integer"),
        (torch.tensor([1.5]), "a length is an integer"),
    ],
)
def test_lengths_that_are_not_lengths_are_refused_by_document(lengths, message):
    with pytest.raises(InvalidLengths, match=message):
        quire.make_plan(lengths, 8)


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
