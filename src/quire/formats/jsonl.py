"""Files with one JSON object per line, plain or compressed. Only ``\\n`` ends a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from typing import Any, BinaryIO, NamedTuple

import orjson

from quire.errors import InvalidState, SourceChanged
from quire.formats.fields import Fields
from quire.formats.files import InputFile
from quire.formats.format import Format, Record, Span
from quire.formats.record_kinds import RecordProblem
from quire.storage import AnyPath

_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 22


class JsonLines(Format):
    """A line's number is its record's number; blank lines are not records."""

    name = "jsonl"
    unit = "line"
    has_byte_positions = True

    def records(self, file: InputFile, span: Span, fields: Fields) -> Iterator[Record]:
        """The objects of the lines that begin in the span."""
        limit = fields.max_record_bytes
        with file.open() as stream:
            _seek(stream, file, span.start)
            for line in read_lines(
                stream,
                max_bytes=limit,
                start=span.start,
                stop=span.stop,
                first=span.first_record,
            ):
                yield _record(line, limit)

    def spans(self, file: InputFile, fields: Fields, limit: int) -> Iterator[Span]:
        """Spans of equal size that start with a line; only a file of several is read for that."""
        if file.compression is not None:
            yield from super().spans(file, fields, limit)
            return
        count = max(1, -(-file.size // limit))
        targets = (file.size * part // count for part in range(1, count))
        edges = chain([(0, 0)], line_starts(file.path, targets), [(file.size, 0)])
        for (start, record), (stop, _) in pairwise(edges):
            if start < stop or count == 1:
                yield Span(
                    file=file.number, start=start, stop=stop, first_record=record, size=stop - start
                )


FORMAT = JsonLines()


class Line(NamedTuple):
    """One line and where it is."""

    number: int
    offset: int
    """Where it starts, in bytes."""
    size: int
    """Its bytes in the file, line end included."""
    data: bytes | None
    """Its content, line end included; None if it is longer than the limit."""


def read_lines(
    stream: BinaryIO, *, max_bytes: int, start: int = 0, stop: int | None = None, first: int = 0
) -> Iterator[Line]:
    """The lines that begin before ``stop``; the stream is at byte ``start``, line ``first``.

    A line over ``max_bytes`` is skipped without being held in memory.

    >>> import io
    >>> [line.data for line in read_lines(io.BytesIO(b"a\\r\\nlong\\nb"), max_bytes=3)]
    [b'a\\r\\n', None, b'b']
    """
    number, offset = first, start
    while stop is None or offset < stop:
        data: bytes | None = stream.readline(max_bytes + 1)
        if not data:
            return
        size = len(data)
        if size > max_bytes and not data.endswith(b"\n"):
            size, data = size + _rest_of_line(stream), None
        yield Line(number, offset, size, data)
        number, offset = number + 1, offset + size


def _rest_of_line(stream: BinaryIO) -> int:
    skipped = 0
    while part := stream.readline(_BLOCK):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def line_starts(path: AnyPath, targets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(offset, line number) of the first line that starts at or after each ascending target.

    Reads the file once, at the speed of the disk, up to the last target; without one, not at all.
    """
    targets = iter(targets)
    first = next(targets, None)
    if first is None:
        return
    offset = number = 0
    with path.open("rb") as stream:
        for target in chain([first], targets):
            offset, number = _count_lines(stream, offset, number, target - 1)
            if offset < target and (rest := _rest_of_line(stream)):
                offset, number = offset + rest, number + 1
            yield offset, number


def _count_lines(stream: BinaryIO, offset: int, number: int, target: int) -> tuple[int, int]:
    while offset < target and (block := stream.read(min(_BLOCK, target - offset))):
        offset += len(block)
        number += block.count(b"\n")
    return offset, number


def _seek(stream: BinaryIO, file: InputFile, start: int) -> None:
    """Move to byte ``start`` of the text, where a line must begin."""
    if not start:
        return
    if file.compression is None:
        stream.seek(start - 1)
    else:
        _skip(stream, start - 1)
    before = stream.read(1)
    if not before and file.compression is not None:
        raise SourceChanged(
            f"{file.path} ends before the position of the cursor, byte {start} of its text; "
            "restore it"
        )
    if before != b"\n" and (not before or stream.read(1)):  # the last line may have no \n
        raise InvalidState(
            f"{file.path}: no line ends at byte {start}, where reading should continue; use a "
            "state as it was saved, with the same files"
        )


def _skip(stream: BinaryIO, count: int) -> None:
    """Read up to this many bytes; a compressed file has no other way."""
    while count and (block := stream.read(min(count, _BLOCK))):
        count -= len(block)


def _record(line: Line, max_bytes: int) -> Record:
    number, offset, size, data = line
    value: Mapping[str, Any] | RecordProblem | None
    if data is None:
        value = RecordProblem(f"has {size} bytes, over {max_bytes}")
    else:
        data = data if offset else data.removeprefix(_BOM)
        try:
            value = parse_record(data) if data and not data.isspace() else None
        except RecordProblem as problem:
            value = problem
    return Record(number, offset + size, size, value, offset)


def parse_record(data: bytes) -> dict[str, Any]:
    """The object in a line of JSON.

    Duplicate keys, numbers that JSON does not have, half a surrogate pair, unbounded nesting and
    bytes that are not UTF-8 are problems; nothing is replaced.

    >>> parse_record(b'{"text": "a"}')
    {'text': 'a'}
    >>> parse_record(b'{"text": "a", "text": "b"}')
    Traceback (most recent call last):
    quire.formats.record_kinds.RecordProblem: has a key twice
    """
    if (record := _flat_record(data)) is not None:
        return record
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
    if b"\\u" in data and (b"\\ud" in data or b"\\uD" in data):  # most texts have no escape
        _require_whole_characters(record)
    return record


_KINDS = {list: "array", str: "string", int: "number", float: "number", bool: "boolean"}


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise RecordProblem("has a key twice")
    return record


def _no_constant(name: str) -> None:
    raise RecordProblem(f"holds {name}, which JSON does not have")


_DECODER = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_no_constant)


def _flat_record(data: bytes) -> dict[str, Any] | None:
    """The object in a line, in less time: if it holds text, numbers and lists of integers.

    Two things that orjson does not report are found here. Of two equal keys it keeps the last; but
    every string has two quotation marks, so those of a lost key are too many. And it makes a float
    of an integer over 64 bits.
    """
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError:  # the other parser says what is wrong
        return None
    if type(record) is not dict:
        return None
    inside = data.count(b'"') - 2 * len(record)
    for value in record.values():
        if type(value) is str:
            inside -= 2
        elif not _is_exact(value):
            return None
    if inside and (b"\\u0022" in data or inside != _num_quotes(record)):
        return None
    return record


def _num_quotes(record: dict[str, Any]) -> int:
    """The quotation marks inside the strings of a flat record."""
    found = 0
    for key, value in record.items():
        found += key.count('"')
        if type(value) is str:
            found += value.count('"')
    return found


def _is_exact(value: object) -> bool:
    """Whether a value is certainly what the line says, and not an integer that became a float."""
    if isinstance(value, float):
        return abs(value) < _INTEGERS_END
    if isinstance(value, list):
        return set(map(type, value)) <= {int}
    return not isinstance(value, dict)


_INTEGERS_END = 2.0**63


def _require_whole_characters(record: object) -> None:
    """Half a surrogate pair can come only from an escape, as the bytes were UTF-8."""
    try:
        json.dumps(record, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise RecordProblem("has half a surrogate pair, which is not a character") from None
