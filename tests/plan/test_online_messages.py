"""The full text of every error that OnlinePacker raises."""

from __future__ import annotations

from typing import Any

import pytest

from quire.errors import InvalidLengths, InvalidOption, OversizedDocument
from quire.plan.online import OnlinePacker
from tests.sealing import resealed

STATE = "pass a state as OnlinePacker.state_dict() returned it"
FIELDS = "['align', 'buffer_size', 'keys', 'max_documents_per_row', 'max_length', 'spaces']"


def packer(**options: Any) -> OnlinePacker[Any]:
    return OnlinePacker(**{"max_length": 10, "buffer_size": 3, **options})


def state(**changed: object) -> dict[str, object]:
    waiting = packer(align=2)
    waiting.add("a", 3)
    waiting.add("b", 9)
    return resealed({**waiting.state_dict(), **changed})


def without(name: str) -> dict[Any, object]:
    return resealed({key: value for key, value in state().items() if key != name})


def whole(name: str, value: object) -> str:
    return f"{name} is {value!r} but must be an integer >= 1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, whole("max_length", 0)),
        ({"buffer_size": 0}, whole("buffer_size", 0)),
        ({"align": 0}, whole("align", 0)),
        ({"max_documents_per_row": 0}, whole("max_documents_per_row", 0)),
        (
            {"align": 11},
            "align=11 is more than the 10 tokens of a row; lower align or raise max_length",
        ),
    ],
)
def test_an_impossible_option_is_rejected(options, message):
    with pytest.raises(InvalidOption) as caught:
        packer(**options)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("length", "error", "message"),
    [
        (
            0,
            InvalidLengths,
            "document 'x' has length 0 but a length is at least 1; leave empty documents out",
        ),
        (True, InvalidLengths, "document 'x' has length True but a length is an integer"),
        (2.0, InvalidLengths, "document 'x' has length 2.0 but a length is an integer"),
        (
            11,
            OversizedDocument,
            "document 'x' has 11 tokens but a row holds 10; "
            "split it before you add it, or raise max_length",
        ),
    ],
)
def test_a_length_that_no_row_can_hold_is_rejected(length, error, message):
    with pytest.raises(error) as caught:
        packer().add("x", length)
    assert str(caught.value) == message


@pytest.mark.parametrize(("max_length", "align"), [(9, 2), (10, 4)])
def test_an_alignment_that_makes_a_document_too_long_is_named(max_length, align):
    with pytest.raises(OversizedDocument) as caught:
        packer(max_length=max_length, align=align).add("x", 9)
    assert str(caught.value) == (
        f"document 'x' has 9 tokens but a row holds 8 (of max_length {max_length} at "
        f"align={align}); split it before you add it, or raise max_length"
    )


def test_a_key_that_json_would_change_is_rejected():
    waiting = packer()
    waiting.add(("a", 1), 3)
    with pytest.raises(InvalidOption) as caught:
        waiting.state_dict()
    assert str(caught.value) == (
        "key ('a', 1) has type tuple but only int and str survive JSON unchanged; "
        "use such keys if you save states"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            without("keys"),
            "the packer's state has fields ['align', 'buffer_size', 'max_documents_per_row', "
            f"'max_length', 'spaces'] but must have {FIELDS}; {STATE}",
        ),
        (
            resealed({**without("align"), "7": 1}),
            "the packer's state has fields ['7', 'buffer_size', 'keys', 'max_documents_per_row', "
            f"'max_length', 'spaces'] but must have {FIELDS}; {STATE}",
        ),
        (
            state(keys=["a"]),
            f"keys and spaces in the packer's state must be two lists of the same length; {STATE}",
        ),
        (
            state(spaces=(4, 10)),
            f"keys and spaces in the packer's state must be two lists of the same length; {STATE}",
        ),
        (
            state(keys=["a", None]),
            "key None has type NoneType but only int and str survive JSON unchanged; "
            "use such keys if you save states",
        ),
        (
            state(keys=["a", "b", "c"], spaces=[4, 10, 6]),
            "the state holds 3 documents with 20 tokens, but with buffer_size=3 and max_length=10 "
            f"a row would have left before; {STATE}",
        ),
    ],
)
def test_a_state_that_no_packer_returned_is_rejected(given, message):
    with pytest.raises(InvalidOption) as caught:
        packer(align=2).load_state_dict(given)
    assert str(caught.value) == message


def test_the_largest_possible_options_and_lengths_are_accepted():
    waiting = packer(align=10, max_documents_per_row=1, buffer_size=1)
    assert waiting.add("x", 10) == []
    assert waiting.add("y", 1) == [["x"]]
    assert waiting.flush() == [["y"]]


@pytest.mark.parametrize("spaces", [[3], [3, 2, 1]])
def test_refill_needs_one_length_per_document(spaces):
    with pytest.raises(ValueError, match=r"argument 2 is (shorter|longer) than argument 1"):
        packer(buffer_size=9).refill(["a", "b"], spaces)
