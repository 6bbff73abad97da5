"""The fields of saved states and their tokens: what is read, and the text of every error."""

from __future__ import annotations

import base64
import errno
import json
import os
from functools import partial

import numpy as np
import pytest

from quire.errors import InvalidState, OutputError
from quire.stream.state import (
    load_state,
    opened,
    read_count,
    read_counts,
    read_fields,
    save_state,
    sealed,
    tokens_from_json,
    tokens_to_json,
)

BODY = {"step": 3, "options": {"é": 1}, "tokenizer": {}, "streams": {"0": {"packer": {}}}}


def arrays(*documents):
    return [np.array(document, np.int32) for document in documents]


def said_of(function, value) -> str:
    """Python's message for this value, which differs between versions."""
    with pytest.raises((ValueError, TypeError)) as raised:
        function(value)
    return str(raised.value)


UTF16 = json.dumps(BODY).encode("utf-16")
NOT_WHOLE = "{} is not a complete JSON document (ERROR); use an earlier state"
from_base64 = partial(base64.b64decode, validate=True)

# Whole states


def test_a_state_is_sealed_with_format_version_and_checksum():
    state = sealed(BODY)
    assert {name: state[name] for name in BODY} == BODY
    assert (state["format"], state["version"], len(state["checksum"])) == ("quire.stream", 3, 64)
    assert opened(json.loads(json.dumps(state))) == state


def test_a_state_of_version_1_opens_in_the_current_form():
    streams = {"0": {"packer": {"rows": []}}, "1": {"packer": {"continues": 1}}, "2": None}
    older = sealed({"version": 1, **BODY, "streams": streams})
    assert opened(older) == sealed(
        {
            **BODY,
            "options": {**BODY["options"], "drop_longer_than": None},
            "streams": {**streams, "0": {"packer": {"rows": [], "tail": 1}}},
        }
    )


def test_a_state_with_other_fields_is_refused():
    with pytest.raises(InvalidState) as raised:
        opened(sealed({"step": 3}))
    assert str(raised.value) == (
        "the state has the fields ['checksum', 'format', 'step', 'version'] but must have "
        "['checksum', 'format', 'options', 'step', 'streams', 'tokenizer', 'version']; use a state "
        "exactly as it was saved"
    )


def test_a_saved_file_is_the_canonical_json_of_its_state(tmp_path):
    save_state(sealed(BODY), tmp_path / "a.json")
    assert (tmp_path / "a.json").read_bytes() == (
        f'{{"checksum":"{sealed(BODY)["checksum"]}","format":"quire.stream",'
        '"options":{"\\u00e9":1},"step":3,"streams":{"0":{"packer":{}}},"tokenizer":{},"version":3}'
    ).encode()
    assert load_state(str(tmp_path / "a.json")) == sealed(BODY)


def test_an_object_that_is_not_a_state_is_not_saved(tmp_path):
    with pytest.raises(InvalidState, match="not a state of a quire stream"):
        save_state(BODY, tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError("a store's words"), "a store's words"),
    ],
)
def test_39_a_failed_save_says_why_and_keeps_the_earlier_state(tmp_path, monkeypatch, error, words):
    """Fault 39."""
    save_state(sealed(BODY), tmp_path / "a.json")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OutputError) as raised:
        save_state(sealed({**BODY, "step": 4}), tmp_path / "a.json")
    assert str(raised.value) == (
        f"the state cannot be saved as {tmp_path / 'a.json'}: {words}; an earlier state there "
        "is kept: fix the cause, then save again"
    )
    assert raised.value.__cause__ is error
    assert load_state(tmp_path / "a.json")["step"] == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", NOT_WHOLE.replace("ERROR", said_of(json.loads, "{"))),
        (UTF16, NOT_WHOLE.replace("ERROR", said_of(bytes.decode, UTF16))),
        (b"[]", "{}: this is not a state of a quire stream: a state is a dict, not a list"),
    ],
)
def test_a_file_without_a_valid_state_is_named_with_the_reason(tmp_path, content, message):
    file = tmp_path / "a.json"
    with pytest.raises(InvalidState) as raised:
        load_state(file)
    assert str(raised.value) == f"there is no state at {file}"
    file.write_bytes(content)
    with pytest.raises(InvalidState) as raised:
        load_state(file)
    assert str(raised.value) == message.replace("{}", str(file))


# Fields


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: read_fields("the packer", [], ("a",)), "the packer is list but must be a dict"),
        (
            lambda: read_fields("the packer", {"b": 1, 7: 1}, ("c", "a")),
            "the packer has the fields ['7', 'b'] but must have ['a', 'c']; use a state "
            "exactly as it was saved",
        ),
        (lambda: read_count("the step", -1), "the step is -1 but must be an integer >= 0"),
        (lambda: read_count("the step", True), "the step is True but must be an integer >= 0"),
        (lambda: read_count("the step", "1"), "the step is '1' but must be an integer >= 0"),
        (
            lambda: read_count("the step", 5, most=4),
            "the step is 5 but must be an integer >= 0 and <= 4",
        ),
        (lambda: read_counts("lengths", 3), "lengths must be a list of integers"),
        (lambda: read_counts("lengths", [3], 2), "lengths must be a list of 2 integers"),
        (lambda: read_counts("lengths", 3, 2), "lengths must be a list of 2 integers"),
        (
            lambda: read_counts("lengths", [3, -1]),
            "lengths[1] is -1 but must be an integer >= 0",
        ),
    ],
)
def test_a_field_that_is_wrong_is_named(call, message):
    with pytest.raises(InvalidState) as raised:
        call()
    assert str(raised.value) == message


def test_valid_fields_are_returned_unchanged():
    assert read_fields("a part", {"b": 1, "a": 2}, ("a", "b")) == {"a": 2, "b": 1}
    assert [read_count("a", 0), read_count("a", 4, most=4), read_count("a", 10**30)] == [
        0,
        4,
        10**30,
    ]
    assert read_counts("a", [0, 7]) == [0, 7]
    assert read_counts("a", [], 0) == []


# Tokens


@pytest.mark.parametrize(
    ("documents", "plain"),
    [
        ([], {"lengths": [], "width": 1, "data": ""}),
        ([[1, 2]], {"lengths": [2], "width": 1, "data": "AQI="}),
        ([[0], [255, 0]], {"lengths": [1, 2], "width": 1, "data": "AP8A"}),
        ([[256]], {"lengths": [1], "width": 2, "data": "AAE="}),
        ([[65535], [1]], {"lengths": [1, 1], "width": 2, "data": "//8BAA=="}),
        ([[65536]], {"lengths": [1], "width": 3, "data": "AAAB"}),
        ([[2**24]], {"lengths": [1], "width": 4, "data": "AAAAAQ=="}),
        ([[2**31 - 1]], {"lengths": [1], "width": 4, "data": "////fw=="}),
    ],
)
def test_tokens_are_stored_in_as_few_bytes_as_the_largest_needs(documents, plain):
    assert tokens_to_json(arrays(*documents)) == plain
    back = tokens_from_json("tokens", plain, 2**31)
    assert [tokens.tolist() for tokens in back] == documents
    assert all(tokens.dtype == np.int32 for tokens in back)


PLAIN = {"lengths": [1, 2], "width": 1, "data": "AQID"}
NOT_THOSE = (
    "ready: {} bytes are not the {} tokens of {} bytes that the lengths say; lengths and "
    "width are at least 1"
)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        (3, "ready is int but must be a dict"),
        (
            {"lengths": []},
            "ready has the fields ['lengths'] but must have ['data', 'lengths', 'width']; use a "
            "state exactly as it was saved",
        ),
        ({**PLAIN, "lengths": None}, "ready: lengths must be a list of integers"),
        (
            {**PLAIN, "lengths": [1, -2]},
            "ready: lengths[1] is -2 but must be an integer >= 0",
        ),
        ({**PLAIN, "width": 5}, "ready: width is 5 but must be an integer >= 0 and <= 4"),
        *(
            ({**PLAIN, "data": data}, f"ready: data is not base64: {said_of(from_base64, data)}")
            for data in ("AQI", "AQ*ID", 7, "é")
        ),
        ({**PLAIN, "width": 2}, NOT_THOSE.format(3, 3, 2)),
        ({**PLAIN, "lengths": [1, 1]}, NOT_THOSE.format(3, 2, 1)),
        ({**PLAIN, "lengths": [1, 2, 0]}, NOT_THOSE.format(3, 3, 1)),
        ({"lengths": [], "width": 0, "data": ""}, NOT_THOSE.format(0, 0, 0)),
        (PLAIN, "ready: token id 3 is outside the vocabulary of 3"),
        (
            {"lengths": [2], "width": 1, "data": "AAc="},
            "ready: token id 7 is outside the vocabulary of 3",
        ),
        (
            {"lengths": [2], "width": 4, "data": "/////wcAAAA="},
            "ready: token id -1 is outside the vocabulary of 3",
        ),
    ],
)
def test_invalid_tokens_are_refused(plain, message):
    with pytest.raises(InvalidState) as raised:
        tokens_from_json("ready", plain, 3)
    assert str(raised.value) == message
