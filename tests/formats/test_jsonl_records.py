from __future__ import annotations

import pytest

from quire.formats.fields import RecordProblem
from quire.formats.jsonl import parse_record


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
