from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.errors import OversizedDocument
from tests.contracts.test_plan_rules import fewest_rows


@pytest.mark.parametrize(
    ("lengths", "max_length", "options", "expected"),
    [
        ([], 10, {}, 0),
        ([0, 0], 10, {}, 0),
        ([5] * 4, 10, {}, 2),
        ([6] * 7, 10, {}, 7),  # no two fit: L2
        ([4] * 9, 10, {}, 5),  # two a row: u(2)
        ([26] * 8, 100, {}, 3),  # three a row: u(3)
        ([51] * 3 + [49] * 3, 100, {}, 3),
        ([51] * 3 + [50] * 3, 100, {}, 5),
        (
            [138, 78, 58, 54],
            178,
            {},
            3,
        ),  # only L2 sees that the middle ones exceed the room
        ([138, 60, 60, 59], 178, {}, 3),  # by one token
        ([50, 50, 45, 30, 23, 14], 58, {}, 5),
        ([47, 47, 45, 41, 16, 14], 57, {}, 5),
        ([1] * 10, 10, {"max_documents_per_row": 3}, 4),
        ([3] * 4, 8, {"align": 4}, 2),
        ([3, 3, 2], 8, {"align": 4}, 2),
        ([3] * 4, 8, {"prefix": 2}, 4),
        ([2**40] * 3, 2**41 - 1, {}, 3),
    ],
)
def test_the_bound_is_as_high_as_arithmetic_allows(lengths, max_length, options, expected):
    bound = quire.lower_bound(lengths, max_length, **options)
    assert bound == expected
    assert type(bound) is int


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_bound_never_exceeds_the_optimum(data):
    max_length = data.draw(st.integers(1, 30))
    lengths = data.draw(st.lists(st.integers(1, max_length), max_size=9))
    cap = data.draw(st.sampled_from([None, 1, 2, 3]))
    bound = quire.lower_bound(lengths, max_length, max_documents_per_row=cap)
    assert bound >= -(-sum(lengths) // max_length)
    searched = quire.lower_bound(lengths, max_length, max_documents_per_row=cap, search=True)
    fewest = fewest_rows(tuple(sorted(lengths)), max_length, cap or len(lengths))
    assert bound <= searched <= fewest


def test_a_search_proves_more_where_few_documents_fill_a_row():
    lengths = [n for n in range(120, 190) for _ in range(20)]  # as SQuAD's in rows of 384
    assert quire.lower_bound(lengths, 384) == 617
    assert quire.lower_bound(lengths, 384, search=True) == 644
    assert quire.make_plan(lengths, 384, strategy="tight").num_rows == 644
    options = {"prefix": 1, "align": 2, "max_documents_per_row": 2}
    spaces = [2 * -(-(length + 1) // 2) for length in lengths]
    assert quire.lower_bound(lengths, 384, **options, search=True) == quire.lower_bound(
        spaces, 384, max_documents_per_row=2, search=True
    )


def weighed(lengths: list[int], max_length: int) -> int:
    """The largest bound of u(0) to u(32), in fractions."""
    bounds = [Fraction(sum(lengths), max_length)]
    for k in range(1, 33):
        weights = [
            Fraction(size, max_length)
            if (k + 1) * size % max_length == 0
            else Fraction((k + 1) * size // max_length, k)
            for size in lengths
        ]
        bounds.append(sum(weights, Fraction(0)))
    return max(math.ceil(bound) for bound in bounds)


@pytest.mark.parametrize("bits", [10, 40, 56, 57, 58, 59, 60])
def test_the_bound_holds_for_any_number_of_tokens(bits):
    rng = random.Random(bits)
    for _ in range(40):
        max_length = 2**bits + rng.randint(0, 5)
        lengths = [rng.randint(max_length // 3, max_length) for _ in range(rng.randint(1, 3))]
        bound = quire.lower_bound(lengths, max_length)
        assert weighed(lengths, max_length) <= bound
        assert bound <= fewest_rows(tuple(sorted(lengths)), max_length, 3)


def test_a_document_longer_than_a_row_has_no_bound():
    with pytest.raises(OversizedDocument) as caught:
        quire.lower_bound([3, 11, 12], 12, prefix=1)
    assert str(caught.value) == (
        "a document has 12 tokens but a row holds 11; "
        "the bound is for documents that fit, so split or truncate them first"
    )
    assert quire.lower_bound([3, 11], 12, prefix=1) == 2
