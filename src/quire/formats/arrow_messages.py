"""What the compressed buffers of an Arrow file expand to, told by their headers.

pyarrow decompresses a record batch as a whole and does not say how large it will be, so the few
fields of the messages' FlatBuffers that say it are read here.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from quire.errors import CorruptFile
from quire.formats.bounded_tables import TEXTS, Expansion
from quire.formats.list_values import is_list


def require_bounded_messages(source: pa.NativeFile, expansion: Expansion, names: set[str]) -> None:
    """Raise if the buffers of an Arrow file expand to more than text can; none is decompressed.

    Columns that are not named are not counted where Arrow would not decompress them.
    """
    source.seek(0)  # a reader may have moved it
    source.seek(8 if source.read(6) == b"ARROW1" else 0)
    schema, expanded = None, 0
    for message in pa.ipc.MessageReader.open_stream(source):
        if message.type == "schema":
            schema = pa.ipc.read_schema(message)
        elif message.type in ("record batch", "dictionary"):
            wanted = None if message.type == "dictionary" else _wanted(schema, names)
            expanded += _expanded(message, wanted)
            expansion.require(expanded)
    source.seek(0)


def _wanted(schema: pa.Schema | None, names: set[str]) -> list[bool] | None:
    """For each buffer of a record batch, whether a named column has it; None: it is not known."""
    wanted: list[bool] = []
    for field in schema or ():
        count = _num_buffers(field.type)
        if count is None:
            return None
        wanted += [field.name in names] * count
    return wanted


def _num_buffers(kind: pa.DataType) -> int | None:
    """How many buffers a column of this type has in a file; None where that varies."""
    if pa.types.is_dictionary(kind):
        return 2
    plain = is_list(kind) or pa.types.is_struct(kind) or any(is_text(kind) for is_text in TEXTS)
    if not plain and not pa.types.is_primitive(kind):
        return None
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return None
    inner = [_num_buffers(kind.field(number).type) for number in range(kind.num_fields)]
    return None if None in inner else kind.num_buffers + sum(n for n in inner if n is not None)


def _expanded(message: pa.Message, wanted: list[bool] | None) -> int:
    """The bytes of a message's compressed buffers once they are decompressed."""
    try:
        data = _Flat(message.metadata.to_pybytes())
        batch = data.child(data.root(), 2)
        if message.type == "dictionary":
            batch = data.child(batch, 1)
        if not data.field(batch, 3):  # no compression: the file holds all of it
            return 0
        start = data.child(batch, 2)
        spans = struct.iter_unpack("<qq", data.bytes_at(start + 4, 16 * data.number(start)))
        body = memoryview(message.body or b"")
        sizes = [
            struct.unpack_from("<q", body, offset)[0] if length >= 8 else 0
            for offset, length in spans
        ]
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptFile(f"an Arrow message is damaged: {error}") from error
    if wanted is None or len(wanted) != len(sizes):
        wanted = [True] * len(sizes)
    return sum(max(0, size) for size, is_wanted in zip(sizes, wanted, strict=True) if is_wanted)


class _Flat:
    """A FlatBuffer, of which only a few fields are needed."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, place: int) -> int:
        return int(struct.unpack_from("<i", self._data, place)[0])

    def root(self) -> int:
        return self.number(0)

    def field(self, table: int, index: int) -> int:
        """Where a field of a table is; 0 where it has none."""
        vtable = table - self.number(table)
        size, place = struct.unpack_from("<H", self._data, vtable)[0], 4 + 2 * index
        offset = struct.unpack_from("<H", self._data, vtable + place)[0] if place < size else 0
        return table + offset if offset else 0

    def child(self, table: int, index: int) -> int:
        """Where the table or vector that a field refers to is."""
        place = self.field(table, index)
        return place + self.number(place)

    def bytes_at(self, place: int, size: int) -> bytes:
        found = self._data[place : place + size]
        if place < 0 or size < 0 or len(found) != size:
            raise ValueError("a field leads outside of it")
        return found
