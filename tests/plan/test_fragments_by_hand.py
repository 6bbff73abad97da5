"""Fragments selected, joined, sorted and cut: literal arrays in, literal arrays out."""

from __future__ import annotations

import numpy as np
import pytest

from quire.errors import OversizedDocument
from quire.plan.fragments import Fragments, apply_overlong, whole_documents
from quire.plan.options import PlanOptions


def fragments(*parts: tuple[int, int, int], num_openings: int = 0) -> Fragments:
    documents, starts, stops = np.array(parts, dtype=np.int32).reshape(-1, 3).T
    return Fragments(documents=documents, starts=starts, stops=stops, num_openings=num_openings)


def parts(found: Fragments) -> list[tuple[int, int, int]]:
    columns = (found.documents, found.starts, found.stops)
    return list(zip(*(column.tolist() for column in columns), strict=True))


CUT = fragments((0, 0, 4), (1, 0, 3), (2, 0, 4), (0, 4, 6), (2, 4, 5), num_openings=3)


def test_openings_and_continuations_are_taken_in_any_order():
    assert parts(CUT.take(np.array([4, 2, 0, 3]))) == [(2, 4, 5), (2, 0, 4), (0, 0, 4), (0, 4, 6)]
    assert parts(CUT.take(np.array([1]))) == [(1, 0, 3)]
    assert parts(CUT.take(np.zeros(0, int))) == []
    some = CUT.take(np.array([3, 1]))
    assert parts(some.take(np.array([1, 0]))) == [(1, 0, 3), (0, 4, 6)]


def test_whole_documents_are_taken_whole():
    whole = whole_documents(np.array([5, 3]), PlanOptions(max_length=8))
    taken = whole.take(np.array([1, 0]))
    assert parts(taken) == [(1, 0, 3), (0, 0, 5)]
    assert {taken.documents.dtype, taken.starts.dtype, taken.stops.dtype} == {np.dtype(np.int32)}


def test_lengths_are_those_of_the_fragments():
    assert CUT.lengths.tolist() == [4, 3, 4, 2, 1]
    assert fragments((0, 2, 4), (1, 1, 9)).lengths.tolist() == [2, 8]


def test_sorting_by_document_keeps_the_order_of_its_fragments():
    ordered = CUT.in_document_order()
    assert parts(ordered) == [(0, 0, 4), (0, 4, 6), (1, 0, 3), (2, 0, 4), (2, 4, 5)]
    many = fragments(*((n % 2, n // 2, n // 2 + 1) for n in range(80)))
    expected = [(document, n, n + 1) for document in (0, 1) for n in range(40)]
    assert parts(many.in_document_order()) == expected


def test_joined_fragments_follow_each_other():
    joined = fragments((3, 1, 2)).joined(fragments((0, 4, 9), (1, 0, 2)))
    assert parts(joined) == [(3, 1, 2), (0, 4, 9), (1, 0, 2)]
    assert joined.num_openings == 0


@pytest.mark.parametrize(
    ("cut", "stride", "expected"),
    [
        ([(0, 0, 5), (0, 3, 8)], 2, [0, 2]),
        ([(0, 3, 8), (0, 0, 5)], 2, [2, 0]),
        ([(0, 0, 5), (0, 3, 8)], 0, [0, 0]),
        ([(1, 0, 5), (0, 3, 8)], 2, [0, 0]),
        ([(1, 2, 5)], 2, [0]),
        ([(0, 1, 3), (0, 5, 9)], 2, [0, 0]),  # what stood between them was dropped
        ([(0, 0, 4), (0, 3, 7), (0, 6, 8), (2, 0, 4), (2, 3, 5)], 1, [0, 1, 1, 0, 1]),
        ([(0, 0, 4), (1, 0, 4), (0, 3, 6), (1, 3, 6)], 1, [0, 0, 1, 1]),
        ([], 2, []),
    ],
)
def test_overlap_is_what_an_earlier_fragment_of_the_document_holds(cut, stride, expected):
    assert fragments(*cut).overlaps(stride).tolist() == expected


def test_empty_documents_have_no_fragments_and_the_others_keep_their_numbers():
    whole = whole_documents(np.array([0, 4, 0, 2]), PlanOptions(max_length=8))
    assert parts(whole) == [(1, 0, 4), (3, 0, 2)]
    assert parts(whole.take(np.array([1]))) == [(3, 0, 2)]


@pytest.mark.parametrize(
    ("longest", "options", "wide"),
    [
        (2**31 - 2, {}, False),
        (2**31 - 1, {}, True),
        (2**31 - 2, {"prefix": 1}, True),
        (2**31 - 9, {"align": 8}, False),
        (2**31 - 8, {"align": 8}, True),
    ],
)
def test_integers_hold_the_space_of_the_longest_document(longest, options, wide):
    whole = whole_documents(np.array([longest, 1]), PlanOptions(max_length=2**33, **options))
    integer = np.int64 if wide else np.int32
    assert (whole.documents.dtype, whole.starts.dtype, whole.stops.dtype) == (integer,) * 3


def test_no_documents_make_no_fragments():
    for lengths in ([], [0, 0]):
        whole = whole_documents(np.array(lengths, dtype=np.uint16), PlanOptions(max_length=8))
        assert parts(whole) == []
        assert parts(apply_overlong(whole, PlanOptions(max_length=8))) == []


LONG = [0, 9, 4, 13]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"overlong": "drop"}, [(2, 0, 4)]),
        ({"overlong": "truncate"}, [(1, 0, 4), (2, 0, 4), (3, 0, 4)]),
        ({"overlong": "truncate_left"}, [(1, 5, 9), (2, 0, 4), (3, 9, 13)]),
        (
            {"overlong": "split"},
            [
                (1, 0, 4),
                (2, 0, 4),
                (3, 0, 4),
                (1, 4, 8),
                (1, 8, 9),
                (3, 4, 8),
                (3, 8, 12),
                (3, 12, 13),
            ],
        ),
        (
            {"overlong": "split", "stride": 1, "min_tail": 2},
            [
                (1, 0, 4),
                (2, 0, 4),
                (3, 0, 4),
                (1, 3, 7),
                (1, 6, 9),
                (3, 3, 7),
                (3, 6, 10),
                (3, 9, 13),
            ],
        ),
        (
            {"overlong": "fill", "min_fragment": 2},
            [
                (1, 0, 4),
                (2, 0, 4),
                (3, 0, 4),
                (1, 4, 7),
                (1, 7, 9),
                (3, 4, 8),
                (3, 8, 11),
                (3, 11, 13),
            ],
        ),
        (
            {"overlong": "split", "min_fragment": 2},
            [
                (1, 0, 4),
                (2, 0, 4),
                (3, 0, 4),
                (1, 4, 8),
                (1, 8, 9),
                (3, 4, 8),
                (3, 8, 12),
                (3, 12, 13),
            ],
        ),
    ],
)
def test_every_policy_gives_these_fragments(options, expected):
    options = PlanOptions(max_length=5, prefix=1, **options)
    found = apply_overlong(whole_documents(np.array(LONG), options), options)
    assert parts(found) == expected
    every = np.arange(len(found))
    assert parts(found.take(every)) == expected
    assert found.stops.dtype == found.starts.dtype == found.documents.dtype == np.int32


def test_the_first_document_that_is_too_long_is_named():
    options = PlanOptions(max_length=5, prefix=1, overlong="error")
    with pytest.raises(OversizedDocument) as caught:
        apply_overlong(whole_documents(np.array(LONG), options), options)
    assert str(caught.value) == (
        "document 1 has 9 tokens but a row holds 4; split it (overlong='split'), "
        "truncate it (overlong='truncate') or raise max_length"
    )
    fits = whole_documents(np.array([4, 1]), options)
    assert apply_overlong(fits, options) is fits
