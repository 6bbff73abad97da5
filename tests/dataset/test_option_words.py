"""Errors of the planner name the options of `pack_dataset`."""

from __future__ import annotations

import pytest

import quire
from quire.errors import InvalidOption, OversizedDocument

RECORDS = [{"text": "abcdef"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, "max_length is 0 but must be"),
        ({"max_length": 1}, "a row of max_length=1 has no room for a token after BOS"),
        ({"max_length": 8, "min_length": 9}, "min_length=9 would drop every row"),
        ({"max_length": 8, "stride": 7}, "after BOS; lower stride or raise max_length"),
        (
            {"max_length": 8, "overlong": "fill", "min_fragment": 9},
            "over half of the . new tokens .* lower min_fragment to 4 or raise max_length",
        ),
    ],
)
def test_impossible_options_are_named_as_they_were_given(options, message):
    with pytest.raises(InvalidOption, match=message):
        quire.pack_dataset(RECORDS, "byte", **options)


@pytest.mark.parametrize("more", [{}, {"group_column": "text"}])
def test_the_error_for_a_document_that_does_not_fit_says_to_raise_max_length(more):
    with pytest.raises(OversizedDocument, match="raise max_length"):
        quire.pack_dataset(RECORDS, "byte", max_length=5, overlong="error", **more)
