"""Errors of the planner name options as those who pack wrote them."""

from __future__ import annotations

import pytest

import quire
from quire.errors import InvalidOption, OversizedDocument

RECORDS = [{"text": "abcdef"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "max_length is 0 but must be"),
        ({"max_length": 1}, "BOS leaves no room for a token in a row of max_length 1; raise"),
        ({"max_length": 8, "min_length": 9}, "min_length=9 would drop every row"),
        ({"max_length": 8, "stride": 7}, "after BOS; lower stride or raise max_length"),
        (
            {"max_length": 8, "overlong": "fill", "min_fragment": 9},
            "over half of the . new tokens .* lower min_fragment to 4 or raise max_length",
        ),
    ],
)
def test_options_that_cannot_be_are_named_as_they_were_given(options, message):
    with pytest.raises(InvalidOption, match=message) as caught:
        quire.pack_dataset(RECORDS, "byte", **options)
    assert "prefix" not in str(caught.value)


@pytest.mark.parametrize("more", [{}, {"group_column": "text"}])
def test_a_document_that_does_not_fit_says_raise_max_length(more):
    with pytest.raises(OversizedDocument, match="raise max_length"):
        quire.pack_dataset(RECORDS, "byte", max_length=5, overlong="error", **more)


def test_the_planner_itself_keeps_its_own_words():
    with pytest.raises(InvalidOption, match="max_length is 0"):
        quire.make_plan([3], max_length=0)
