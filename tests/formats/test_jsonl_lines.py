"""Lines end at a newline byte and nowhere else."""

from __future__ import annotations

import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.formats.jsonl import Line, line_starts, parse_record, read_lines
from quire.formats.record_kinds import RecordProblem


def lines(data: bytes, **options) -> list[Line]:
    return list(read_lines(io.BytesIO(data), **{"max_bytes": 100, **options}))


def test_only_a_newline_ends_a_line():
    data = "a\r\nb\u2028c\x85d\x0be\x00\n\nf".encode()
    assert [line.data for line in lines(data)] == [
        b"a\r\n",
        "b\u2028c\x85d\x0be\x00\n".encode(),
        b"\n",
        b"f",
    ]


def test_lines_have_their_number_and_offset():
    assert lines(b"ab\n\nc\n") == [
        Line(0, 0, 3, b"ab\n"),
        Line(1, 3, 1, b"\n"),
        Line(2, 4, 2, b"c\n"),
    ]


def test_a_line_at_the_limit_is_read_and_a_longer_one_is_skipped():
    assert [(line.size, line.data) for line in lines(b"abc\nabcd\nab\n", max_bytes=3)] == [
        (4, b"abc\n"),
        (5, None),
        (3, b"ab\n"),
    ]
    assert lines(b"abcd", max_bytes=3) == [Line(0, 0, 4, None)]


def test_a_span_ends_with_the_line_that_began_in_it():
    assert [line.data for line in lines(b"ab\ncd\nef\n", stop=4)] == [b"ab\n", b"cd\n"]


@given(st.binary(max_size=60).map(lambda b: b.replace(b"x", b"\n")), st.data())
def test_spans_from_line_starts_give_every_line_once(tmp_path_factory, data, draw):
    path = tmp_path_factory.mktemp("lines") / "file"
    path.write_bytes(data)
    targets = sorted(draw.draw(st.lists(st.integers(1, max(1, len(data))), max_size=4)))
    edges = [(0, 0), *line_starts(path, targets), (len(data), None)]
    found = []
    for (start, first), (stop, _) in pairwise(edges):
        with path.open("rb") as stream:
            stream.seek(start)
            found += read_lines(stream, max_bytes=99, start=start, stop=stop, first=first)
    assert found == lines(data)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"text": "a"', "is not JSON: Expecting ',' delimiter at character 12 and has no line"),
        (b'{"text": a}\n', "is not JSON: Expecting value at character 9"),
        (b'{"text": "\xff"}\n', "is not UTF-8: invalid start byte at byte 10"),
        (b'{"text": "\\ud800"}\n', "has half a surrogate pair"),
        (b'{"a": {"b": 1, "b": 2}}\n', "has a key twice"),
        (b'{"a": Infinity}\n', "holds Infinity"),
        (b'{"a": NaN}\n', "holds NaN"),
        (b"[1]\n", "is a JSON array"),
        (b"[" * 100_000 + b"]" * 100_000, "is nested too deep"),
    ],
)
def test_a_line_that_is_not_a_record_is_rejected_with_the_reason(data, problem):
    with pytest.raises(RecordProblem, match=problem.replace("(", r"\(")):
        parse_record(data)


def test_a_whole_surrogate_pair_is_a_character():
    assert parse_record(b'{"text": "\\ud83d\\ude42"}') == {"text": "🙂"}
