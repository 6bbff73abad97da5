from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.formats import jsonl
from quire.formats.jsonl import parse_record
from quire.formats.record_kinds import RecordProblem

NUMBERS = [0, -1, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 0.5, -0.0, 1e15, 1e300]
strings = st.text('ab"\\/\n\u00e9\U0001f642:,{}[] ', max_size=8)
values = (
    strings
    | st.sampled_from([*NUMBERS, True, False, None])
    | st.lists(st.sampled_from([*NUMBERS, True, "x"]), max_size=3)
    | st.dictionaries(strings, strings, max_size=1)
)


@st.composite
def lines(draw) -> bytes:
    """Lines of JSON as other programs write them: equal keys, escapes and spaces anywhere."""

    def written(string: str) -> str:
        plain = json.dumps(string, ensure_ascii=draw(st.booleans()))
        for character, escape in (("a", "\\u0061"), ('\\"', "\\u0022"), ("/", "\\/")):
            if draw(st.booleans()):
                plain = plain.replace(character, escape)
        return plain

    colon, comma = draw(st.sampled_from([":", ": ", " :"])), draw(st.sampled_from([",", ", "]))
    pairs = draw(st.lists(st.tuples(strings, values), max_size=4))
    if pairs and draw(st.booleans()):
        pairs.append((pairs[0][0], draw(values)))
    texts = [
        written(key) + colon + (written(value) if isinstance(value, str) else json.dumps(value))
        for key, value in pairs
    ]
    return ("{" + comma.join(texts) + "}").encode() + draw(st.sampled_from([b"", b"\n", b" "]))


def outcome(line: bytes) -> object:
    try:
        return repr(parse_record(line))  # tells 1 from True and 0.0 from -0.0
    except RecordProblem as problem:
        return RecordProblem, str(problem)


@given(lines())
def test_the_fast_parser_gives_what_the_strict_one_gives(line):
    found = outcome(line)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_flat_record", lambda data: None)
        assert found == outcome(line)


@pytest.mark.parametrize(
    ("line", "is_fast"),
    [
        (b'{"text": "a \\"quoted\\" word\\n", "n": 1, "ids": [1, 2], "x": null}\n', True),
        (b'{"text": "", "score": 0.5, "\\u0061": true}', True),
        (b'{"a": 1, "a": 1}', False),
        (b'{"a": 1, "\\u0061": 1}', False),
        (b'{"a/b": 1, "a\\/b": 1}', False),
        (b'{"a": 1, "a": "\\u0022\\u0022"}', False),
        (b'{"a\\\\": 1, "a\\\\": "a\\"x"}', False),
        (b'{"n": 18446744073709551616}', False),
        (b'{"ids": [18446744073709551616]}', False),
        (b'{"ids": [1.5]}', False),
        (b'{"messages": [{"role": "user"}]}', False),
        (b'{"a": "\\ud800"}', False),
        (b'["a"]', False),
        (b'{"a": 1e400}', False),
    ],
)
def test_only_what_both_parsers_read_alike_is_read_by_the_fast_one(line, is_fast):
    assert (jsonl._flat_record(line) is not None) == is_fast


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"text": "a\tb"}\n', "is not JSON: Invalid control character at character 11"),
        (b'{"text": "a}\n', "is not JSON: Invalid control character at character 12"),
        (
            b'{"text": "a}',
            "is not JSON: Unterminated string starting at character 9 and has no line end: the "
            "file may be cut off",
        ),
        (b'{"text": }\n', "is not JSON: Expecting value at character 9"),
    ],
)
def test_the_position_of_a_syntax_error_is_named_once(line, problem):
    with pytest.raises(RecordProblem) as caught:
        parse_record(line)
    assert str(caught.value) == problem
