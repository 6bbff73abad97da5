"""Seals: intact states open, everything else is refused with the reason."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import InvalidState
from quire.seals import Seal, canonical, checksum, renamed

SEAL = Seal(format="quire.test", owner="a test")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "step"]), values))
def test_a_sealed_state_can_be_read_back_from_bytes(body):
    state = SEAL.opened(json.loads(json.dumps(SEAL.sealed(body))))
    assert SEAL.unsealed(state) == body
    assert (state["format"], state["version"]) == ("quire.test", 3)


@given(st.dictionaries(st.sampled_from(["a", "b"]), values, min_size=1), values)
def test_any_changed_value_breaks_the_seal(body, other):
    state = SEAL.sealed(body)
    name = min(body)
    if json.dumps(body[name], sort_keys=True) == json.dumps(other, sort_keys=True):
        return
    with pytest.raises(InvalidState, match="damaged or changed; use an earlier state"):
        SEAL.opened({**state, name: other})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format": "quire.other"},
            "this is not a state of a test: its format is 'quire.other', not 'quire.test'",
        ),
        (
            {"version": 4},
            "the state has version 4 but this quire reads up to 3; upgrade quire",
        ),
        ({"version": True}, "the state has version True but a version is an integer >= 1"),
        ({"version": "1"}, "the state has version '1' but a version is an integer >= 1"),
        ({"version": 0}, "the state has version 0 but a version is an integer >= 1"),
        ({"version": None}, "the state has version None but a version is an integer >= 1"),
        (
            {"step": {1}},
            "the state is not JSON: Object of type set is not JSON serializable",
        ),
    ],
)
def test_an_invalid_state_is_refused_with_the_reason(changes, message):
    with pytest.raises(InvalidState) as raised:
        SEAL.opened({**SEAL.sealed({"step": 1}), **changes})
    assert str(raised.value) == message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2, "a": 3}])
def test_values_and_keys_that_json_cannot_hold_are_refused(value):
    with pytest.raises(InvalidState, match=r"^the state is not JSON: "):
        SEAL.sealed({"step": value})


def test_a_state_nested_too_deeply_is_refused():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidState, match=r"^the state is not JSON: "):
        SEAL.sealed({"step": deep})


@pytest.mark.parametrize("state", [{}, {"step": 1}, {"Format": "quire.test"}])
def test_a_dict_without_a_format_is_not_a_state(state):
    with pytest.raises(InvalidState) as raised:
        SEAL.opened(state)
    assert str(raised.value) == (
        "this is not a state of a test: its format is None, not 'quire.test'"
    )


def test_a_value_that_is_not_a_dict_is_not_a_state():
    with pytest.raises(InvalidState) as raised:
        SEAL.opened([])
    assert str(raised.value) == "this is not a state of a test: a state is a dict, not a list"


def test_a_state_without_a_checksum_is_damaged():
    state = {"format": "quire.test", "version": 1}
    with pytest.raises(InvalidState, match="the state's checksum is None but its content has '"):
        SEAL.opened(state)


def test_every_version_is_read_in_the_current_form():
    seal = Seal(
        format="quire.test",
        owner="a test",
        migrations={
            1: lambda body: {**body, "steps": body["steps"] + [2]},
            2: lambda body: {**body, "steps": body["steps"] + [3]},
        },
    )
    for version, steps in ((1, [2, 3]), (2, [3]), (3, [])):
        state = seal.sealed({"version": version, "steps": []})
        assert seal.opened(state) == seal.sealed({"steps": steps})


def test_a_version_from_before_the_seal_needs_none_and_keeps_the_checksum_that_it_has():
    seal = Seal(format="quire.test", owner="a test", first=2)
    assert seal.opened({"version": 1, "step": 3}) == seal.sealed({"step": 3})
    with pytest.raises(InvalidState, match="damaged or changed"):
        seal.opened({"version": 1, "step": 3, "checksum": "0123"})
    with pytest.raises(InvalidState, match="its format is None"):
        seal.opened({"version": 2, "step": 3})
    with pytest.raises(InvalidState, match=r"its format is 'quire\.other'"):
        seal.opened({"format": "quire.other", "version": 1, "step": 3})


def test_keys_are_renamed_in_their_order():
    content = {"seed": 0, "capacity": 8, "stride": 1}
    assert list(renamed({"capacity": "max_length"}, content).items()) == [
        ("seed", 0),
        ("max_length", 8),
        ("stride", 1),
    ]


def test_the_seal_of_a_body_has_a_known_value():
    assert SEAL.sealed({"step": 3}) == {
        "format": "quire.test",
        "version": 3,
        "step": 3,
        "checksum": hashlib.sha256(b'{"format":"quire.test","step":3,"version":3}').hexdigest(),
    }
    assert SEAL.unsealed(SEAL.sealed({"step": 3})) == {"step": 3}


def test_the_checksum_does_not_depend_on_the_order_of_keys():
    assert canonical({"b": [1, 2], "a": "é\n"}) == '{"a":"\\u00e9\\n","b":[1,2]}'
    assert checksum({"b": 1, "a": 2}) == checksum({"a": 2, "b": 1})
    assert checksum({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


def test_the_error_names_the_wrong_and_the_right_checksum():
    state = SEAL.sealed({"step": 3}) | {"checksum": "0123"}
    whole = checksum({name: state[name] for name in state if name != "checksum"})
    with pytest.raises(InvalidState) as raised:
        SEAL.opened(state)
    assert str(raised.value) == (
        f"the state's checksum is '0123' but its content has {whole!r}: it was damaged or changed; "
        "use an earlier state"
    )
