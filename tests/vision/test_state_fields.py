"""Fields of the states of packed datasets: what is accepted, and every error message."""

from __future__ import annotations

import pytest

from quire.errors import InvalidState
from quire.vision.state import SEAL, opened, read_count, read_flag, read_rows, require_same_terms

BODY = {"epoch": 1, "terms": {}, "share": [0, 1], "place": {}, "account": [], "packs": {}}


def test_a_state_opens_as_it_was_sealed():
    assert opened(SEAL.sealed(BODY)) == SEAL.sealed(BODY)
    assert (SEAL.sealed(BODY)["format"], SEAL.sealed(BODY)["version"]) == ("quire.vision", 3)


def test_a_state_of_version_1_was_grouped_by_the_buffer():
    older = SEAL.sealed({"version": 1, **BODY, "terms": {"packing_length": 8}})
    terms = {"packing_length": 8, "packing_scope": "buffer", "seed": None, "plan": None}
    assert opened(older) == SEAL.sealed({**BODY, "terms": terms})
    assert opened(SEAL.sealed({"version": 1, **BODY, "terms": 3})) == SEAL.sealed(
        {**BODY, "terms": 3}
    )


def test_a_state_with_other_fields_is_rejected():
    with pytest.raises(InvalidState) as raised:
        opened(SEAL.sealed({"epoch": 1}))
    assert str(raised.value) == (
        "the state has the fields ['checksum', 'epoch', 'format', 'version'] but must have "
        "['account', 'checksum', 'epoch', 'format', 'packs', 'place', 'share', 'terms', "
        "'version']; use a state as state_dict() returned it"
    )


def test_terms_that_differ_are_all_named():
    require_same_terms({"a": 1}, {"a": 1})
    with pytest.raises(InvalidState) as raised:
        require_same_terms({"b": 1, "a": "x", "c": 3}, {"a": "y", "c": 3})
    assert str(raised.value) == (
        "a is 'x' in the state and 'y' here; b is 1 in the state and None here: continue with the "
        "same dataset, options and ranks, or start the epoch over"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: require_same_terms([], {}), "the state's terms are list but must be a dict"),
        (lambda: read_count("epoch", -1), "the state's epoch is -1 but must be an integer >= 0"),
        (lambda: read_count("epoch", "1"), "the state's epoch is '1' but must be an integer >= 0"),
        (
            lambda: read_count("epoch", True),
            "the state's epoch is True but must be an integer >= 0",
        ),
        (
            lambda: read_count("epoch", 2**63),
            f"the state's epoch is {2**63} but must be an integer >= 0",
        ),
        (
            lambda: read_count("place", 5, most=4),
            "the state's place is 5 but must be an integer >= 0 and <= 4",
        ),
        (
            lambda: read_rows("account", 3),
            "the state's account must be a list of lists, not 3",
        ),
        (
            lambda: read_rows("account", [[1], 2]),
            "the state's account must be a list of lists, not [[1], 2]",
        ),
        (
            lambda: read_rows("account", [[1, 2], [3]], 2),
            "the state's account has a row [3] but a row has 2 values",
        ),
        (
            lambda: read_flag("finished", "no"),
            "the state's finished is 'no' but must be true or false",
        ),
        (lambda: read_flag("finished", 0), "the state's finished is 0 but must be true or false"),
    ],
)
def test_a_field_that_is_wrong_is_named(call, message):
    with pytest.raises(InvalidState) as raised:
        call()
    assert str(raised.value) == message


def test_valid_values_are_returned():
    assert [read_count("a", 0), read_count("a", 4, most=4), read_count("a", 2**63 - 1)] == [
        0,
        4,
        2**63 - 1,
    ]
    assert read_rows("a", [[1], [2, 3]]) == [[1], [2, 3]]
    assert read_rows("a", [[1], [2]], 1) == [[1], [2]]
    assert read_rows("a", [], 1) == []
    assert (read_flag("a", True), read_flag("a", False)) == (True, False)
