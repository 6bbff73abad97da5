"""One line of JSON to one record, or the reason why it is none."""

from __future__ import annotations

import json
from typing import Any

_BOM = b"\xef\xbb\xbf"


class RecordProblem(ValueError):
    """Why a record is bad, in words that complete 'record 7 ...' and repeat nothing of its text."""


def parse_record(data: bytes) -> dict[str, Any]:
    """The object in a line of JSON.

    A key that comes twice, a number that JSON does not have, half a surrogate pair, nesting without
    end and bytes that are no UTF-8 are problems; nothing is replaced.

    >>> parse_record(b'{"text": "a"}')
    {'text': 'a'}
    >>> parse_record(b'{"text": "a", "text": "b"}')
    Traceback (most recent call last):
    quire.formats.json_records.RecordProblem: has a key twice
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RecordProblem(f"is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        record = _DECODER.decode(text)
    except RecursionError:
        raise RecordProblem("is nested too deep") from None
    except json.JSONDecodeError as error:
        cut = "" if data.endswith(b"\n") else " and has no line end: the file may be cut off"
        problem = error.msg.removesuffix(" at")  # some messages expect the place to follow
        raise RecordProblem(f"is not JSON: {problem} at character {error.pos}{cut}") from None
    except RecordProblem:
        raise
    except ValueError:  # Python's own limit, against numbers that take hours to read
        raise RecordProblem("holds an integer of more digits than can be read") from None
    if not isinstance(record, dict):
        raise RecordProblem(f"is a JSON {_KINDS.get(type(record), 'value')}, not an object")
    if b"\\ud" in data or b"\\uD" in data:
        _require_whole_characters(record)
    return record


def without_bom(data: bytes) -> bytes:
    """The first line of a file without the mark that some editors put before it."""
    return data.removeprefix(_BOM)


_KINDS = {list: "array", str: "string", int: "number", float: "number", bool: "boolean"}


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise RecordProblem("has a key twice")
    return record


def _no_constant(name: str) -> None:
    raise RecordProblem(f"holds {name}, which JSON does not have")


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_constant)


def _require_whole_characters(record: object) -> None:
    """Half a surrogate pair can come from an escape alone, as the bytes were UTF-8."""
    try:
        json.dumps(record, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise RecordProblem("has half a surrogate pair, which is no character") from None
