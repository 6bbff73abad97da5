"""Arrow files, in both of Arrow's forms: with a footer, and as a stream.

pyarrow decompresses a record batch as a whole and does not report its size beforehand, so the few
fields of the messages' FlatBuffers that state it are read here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import pyarrow as pa

from quire.errors import CorruptFile
from quire.formats.arrays import is_list, require_sound
from quire.formats.compression import Expansion
from quire.formats.files import InputFile
from quire.formats.format import Span
from quire.formats.tables import BYTES, Table, TableFormat, rows_within, without_dictionaries
from quire.storage import RemotePath

Reader: TypeAlias = pa.RecordBatchFileReader | pa.RecordBatchStreamReader
_MAGIC = b"ARROW1"


@contextmanager
def _open(file: InputFile, names: Sequence[str]) -> Iterator[Table]:
    """The file, to read these columns; without names, to read its schema."""
    with _source(file) as source:
        with _reader(source, file.size) as reader:
            if not names:
                yield _ArrowTable(reader, file, names)
                return
            places = [reader.schema.get_field_index(name) for name in names]
        require_bounded_messages(source, Expansion(file.path, file.size), set(names))
        with _reader(source, file.size, sorted(places)) as reader:
            yield _ArrowTable(reader, file, names)


FORMAT = TableFormat("arrow", _open)


class _ArrowTable:
    """Its parts are record batches."""

    def __init__(self, reader: Reader, file: InputFile, names: Sequence[str]) -> None:
        self._reader, self._file, self._names = reader, file, list(names)

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def sizes(self) -> list[tuple[int, int]]:
        return [(batch.num_rows, batch.nbytes) for batch in self._record_batches()]

    def rows(self, span: Span) -> Iterator[pa.RecordBatch]:
        expansion = Expansion(self._file.path, self._file.size)
        for batch in rows_within(self._file, span, self._record_batches()):
            yield from without_dictionaries(batch, expansion)

    def _record_batches(self) -> Iterator[pa.RecordBatch]:
        has_footer = isinstance(self._reader, pa.RecordBatchFileReader)
        numbers = range(self._reader.num_record_batches) if has_footer else ()
        for batch in map(self._reader.get_batch, numbers) if has_footer else self._reader:
            require_sound(batch)
            yield batch.select(self._names)


def _source(file: InputFile) -> pa.NativeFile:
    if isinstance(file.path, RemotePath):
        return file.path.arrow_file()
    return pa.memory_map(str(file.path))


def _reader(source: pa.NativeFile, size: int, places: Sequence[int] = ()) -> Reader:
    source.seek(0)
    has_footer = size >= len(_MAGIC) and source.read(len(_MAGIC)) == _MAGIC
    source.seek(0)
    options = pa.ipc.IpcReadOptions(included_fields=list(places) or None)
    opened = pa.ipc.open_file if has_footer else pa.ipc.open_stream
    return opened(source, options=options)


def require_bounded_messages(source: pa.NativeFile, expansion: Expansion, names: set[str]) -> None:
    """Raise if the buffers of an Arrow file expand to more than text can; none is decompressed.

    Columns that are not named are not counted where Arrow would not decompress them.
    """
    source.seek(0)  # a reader may have moved it
    source.seek(8 if source.read(len(_MAGIC)) == _MAGIC else 0)
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
    """For each buffer of a record batch, whether it belongs to a named column; None: unknown."""
    wanted: list[bool] = []
    for field in schema or ():
        count = _num_buffers(field.type)
        if count is None:
            return None
        wanted += [field.name in names] * count
    return wanted


def _num_buffers(kind: pa.DataType) -> int | None:
    """How many buffers a column of this type has in a file; None if that varies."""
    if pa.types.is_dictionary(kind):
        return 2
    plain = is_list(kind) or pa.types.is_struct(kind) or any(is_one(kind) for is_one in BYTES)
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
        """Where a field of a table is; 0 if it is absent."""
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
            raise ValueError("a field points outside of it")
        return found
