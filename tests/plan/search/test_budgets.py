"""Sizes in several dimensions: invalid ones, and which dimensions are left out."""

from __future__ import annotations

import numpy as np
import pytest

from quire.errors import InvalidLengths, InvalidOption, OversizedDocument
from quire.plan.search.bound import vector_bound
from quire.plan.search.budgets import Vectors, essential, one_dimension, read_vectors
from quire.plan.search.several_budgets import pack_vectors

TIMES = np.iinfo(np.int64).max


@pytest.mark.parametrize("function", [pack_vectors, vector_bound])
@pytest.mark.parametrize(
    ("sizes", "budgets", "error", "message"),
    [
        (
            [[5, 1], [11, 2]],
            [10, 4],
            OversizedDocument,
            "document 1 has size 11 in dimension 0 but a row holds 10; split it, leave it out, "
            "or raise budgets[0]",
        ),
        (
            [[5, 1], [5, 5]],
            [10, 4],
            OversizedDocument,
            "document 1 has size 5 in dimension 1 but a row holds 4; split it, leave it out, "
            "or raise budgets[1]",
        ),
        (
            [[5, 1], [0, 0]],
            [10, 4],
            InvalidLengths,
            "document 1 has size 0 in every dimension but must have a positive one; leave "
            "empty documents out",
        ),
        ([[0]], [10], InvalidLengths, "document 0 has size 0 in every dimension but must"),
        (
            [[5, 1], [5, -1]],
            [10, 4],
            InvalidLengths,
            "sizes in dimension 1: document 1 has length -1 but lengths start at 0",
        ),
        (
            [[5, 1], [5, 1.5]],
            [10, 4],
            InvalidLengths,
            "sizes in dimension 0: document 0 has length 5.0 but a length is an integer",
        ),
        ([[True, False]], [10, 4], InvalidLengths, "document 0 has length True but a length is"),
        ([["a", "b"]], [10, 4], InvalidLengths, "document 0 has length 'a' but a length is an"),
        ([[5, None]], [10, 4], InvalidLengths, "sizes in dimension 1: document 0 has length None"),
        ([[2**70, 1]], [10, 4], InvalidLengths, "sizes in dimension 0: document 0 has length 118"),
        ([[TIMES, 1]] * 3, [10, 4], InvalidLengths, "the lengths sum to 2.77e+19 tokens"),
        ([[5, 1], [5]], [10, 4], InvalidLengths, "pass 2 integers for every document"),
        ([5, 1], [10, 4], InvalidLengths, "sizes have shape (2,) but there are 2 budgets"),
        ([[5, 1]], [10], InvalidLengths, "sizes have shape (1, 2) but there are 1 budgets"),
        ([[5, 1]], [10, 4, 3], InvalidLengths, "sizes have shape (1, 2) but there are 3 budgets"),
        ([[]], [10], InvalidLengths, "sizes have shape (1, 0) but there are 1 budgets"),
        ([[5, 1]], [], InvalidOption, "0 budgets were given but a row has 1 to 8 dimensions"),
        ([[1] * 9], [1] * 9, InvalidOption, "9 budgets were given but a row has 1 to 8 dimensions"),
        ([[5, 1]], [10, 0], InvalidOption, "budgets[1] is 0 but must be an integer >= 1"),
        ([[5, 1]], [-10, 4], InvalidOption, "budgets[0] is -10 but must be an integer >= 1"),
        ([[5, 1]], [10.5, 4], InvalidOption, "budgets[0] is 10.5 but must be an integer >= 1"),
        ([[5, 1]], [2**63, 4], InvalidOption, "a budget is 9223372036854775808 but the largest"),
        ([[5]], 10, InvalidOption, "budgets is 10 but must be a sequence of integers"),
        ([[5]], "9", InvalidOption, "budgets is '9' but must be a sequence of integers"),
    ],
)
def test_bad_sizes_and_budgets_are_named(function, sizes, budgets, error, message):
    with pytest.raises(error) as caught:
        function(sizes, budgets)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_items": 0}, "max_items is 0 but must be an integer >= 1"),
        ({"max_items": 2.0}, "max_items is 2.0 but must be an integer >= 1"),
        ({"seed": -1}, "seed is -1 but must be an integer >= 0"),
        ({"effort": "ful"}, "unknown effort 'ful'; did you mean 'full'? known: fast, full"),
        ({"effort": None}, "unknown effort None; known: fast, full"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InvalidOption) as caught:
        pack_vectors([[5, 1]], [10, 4], **options)
    assert str(caught.value) == message


def test_the_callers_sizes_are_not_modified():
    sizes = np.array([[5, 1], [7, 2], [3, 3]])
    before = sizes.copy()
    pack_vectors(sizes, [10, 4])
    assert (sizes == before).all()
    sizes.flags.writeable = False
    pack_vectors(sizes, [10, 4])


def kept_budgets(sizes, budgets, max_items=None) -> list[int]:
    return essential(read_vectors(sizes, budgets, max_items)).budgets.tolist()


def test_a_dimension_that_another_implies_is_left_out():
    """Tiles of at least 256 tokens: 16,384 tokens hold no more than 64 of them."""
    sizes = [[1313, 5], [802, 3], [371, 1]] * 20
    assert kept_budgets(sizes, [16_384, 64]) == [16_384]
    assert kept_budgets(sizes, [16_384, 56]) == [56, 16_384]
    assert kept_budgets([[1279, 5], *sizes], [16_384, 64]) == [64, 16_384]


def test_of_two_equal_dimensions_one_is_kept():
    assert kept_budgets([[6, 6], [7, 7]], [10, 10]) == [10]
    assert kept_budgets([[6, 12], [7, 14]], [10, 20]) == [10]


def test_a_budget_that_holds_everything_is_left_out():
    assert kept_budgets([[6, 2], [7, 2]], [10, 4]) == [10]
    assert kept_budgets([[5, 2], [4, 2]], [10, 4]) == []


def test_dimensions_are_measured_in_their_largest_unit():
    vectors = essential(read_vectors([[40, 9], [60, 1], [20, 8]], [99, 10], None))
    assert vectors.budgets.tolist() == [4, 10]
    assert vectors.sizes.tolist() == [[2, 9], [3, 1], [1, 8]]


def test_sizes_too_large_to_compare_exactly_are_kept():
    large = 2**61
    sizes = [[large, 2], [large // 2, 1], [1, 2]]
    assert kept_budgets(sizes, [large, 3]) == [3, large]
    assert pack_vectors(sizes, [large, 3]).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("sizes", "budgets", "expected"),
    [
        ([[5], [3]], [6], (6, None)),
        ([[5, 1], [3, 1]], [6, 1], (6, 1)),
        ([[1, 5], [1, 3]], [1, 6], (6, 1)),
        ([[1], [1]], [1], (1, None)),
        ([[5, 2], [3, 1]], [6, 2], None),
        ([[5, 1], [0, 1]], [6, 1], None),
    ],
)
def test_one_dimension_and_a_number_of_documents_are_an_ordinary_problem(sizes, budgets, expected):
    vectors = Vectors(sizes=np.array(sizes), budgets=np.array(budgets))
    single = one_dimension(vectors)
    assert (single and (single.max_length, single.cap)) == expected
