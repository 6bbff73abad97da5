"""Lines of a binary stream, split on ``\\n`` and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO, NamedTuple

from quire.storage import AnyPath

_BLOCK = 1 << 22


class Line(NamedTuple):
    """One line and where it stands."""

    number: int
    offset: int
    """Where it starts, in bytes."""
    size: int
    """Its bytes in the file, line end included."""
    data: bytes | None
    """What it holds, line end included; None if that is more than the limit."""


def read_lines(
    stream: BinaryIO, *, max_bytes: int, start: int = 0, stop: int | None = None, first: int = 0
) -> Iterator[Line]:
    """The lines from the stream's place on, which is ``start``, that begin before ``stop``.

    A line over ``max_bytes`` is passed over without being held in memory.

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
    passed = 0
    while part := stream.readline(_BLOCK):
        passed += len(part)
        if part.endswith(b"\n"):
            break
    return passed


def line_starts(path: AnyPath, targets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(offset, line number) of the first line that starts at or behind each ascending target.

    Reads the file once, at the speed of the disk, as far as it is asked; for no target not at all.
    """
    targets = iter(targets)
    first = next(targets, None)
    if first is None:
        return
    offset = number = 0
    with path.open("rb") as stream:
        for target in chain([first], targets):
            offset, number = _pass_lines(stream, offset, number, target - 1)
            line = stream.readline(_BLOCK) if offset < target else b""
            while line:
                offset += len(line)
                if line.endswith(b"\n"):
                    number += 1
                    break
                line = stream.readline(_BLOCK)
            yield offset, number


def _pass_lines(stream: BinaryIO, offset: int, number: int, target: int) -> tuple[int, int]:
    while offset < target and (block := stream.read(min(_BLOCK, target - offset))):
        offset += len(block)
        number += block.count(b"\n")
    return offset, number
