"""Parquet and Arrow data in pieces of bounded size, whatever a small file expands to.

A value that stands once in a dictionary may be repeated a million times in a few bytes, and a
compressed buffer may hold gigabytes of zeros. Sizes are therefore taken from the metadata before
anything is decoded, and so few rows are decoded at once that they fit a piece even if each of them
is the whole dictionary. Text inside lists is read as dictionaries, which are expanded a piece at a
time: a row may hold any number of values there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.errors import CorruptFile
from quire.formats.list_values import is_list

MAX_EXPANSION = 250
"""Text shrinks to a tenth or a twentieth; more than this is meant to fill a disk or the memory."""
ALWAYS_ALLOWED = 64 << 20
PIECE_BYTES = 16 << 20
_MOST_ROWS = 1024
_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BOOLEAN": 1}


class Expansion:
    """What a file of so many bytes expands to, counted as it is read."""

    def __init__(self, shown: object, size: int) -> None:
        self._shown, self._size = shown, size
        self._expanded = 0

    def add(self, num_bytes: int) -> None:
        """Raise if that is more than text can expand to."""
        self._expanded += num_bytes
        self.require(self._expanded)

    def require(self, expanded: int) -> None:
        """Raise if so many bytes in all are more than text can expand to."""
        if expanded > max(ALWAYS_ALLOWED, MAX_EXPANSION * self._size):
            raise CorruptFile(
                f"{self._shown} has {self._size} bytes and expands to more than {expanded}, over "
                f"{MAX_EXPANSION} times as many; expand it yourself if it is meant to be so"
            )


def nested_texts(metadata: pq.FileMetaData, names: Collection[str]) -> list[str]:
    """The columns of text inside the named ones: those to be read as dictionaries."""
    leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    return [
        leaf.path
        for leaf in leaves
        if leaf.physical_type == "BYTE_ARRAY"
        and leaf.path not in names
        and leaf.path.partition(".")[0] in names
    ]


def _chunks(metadata: pq.FileMetaData, names: Collection[str]) -> Iterator[pq.ColumnChunkMetaData]:
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for chunk in (group.column(i) for i in range(group.num_columns)):
            if chunk.path_in_schema.partition(".")[0] in names:
                yield chunk


def decoded_size(metadata: pq.FileMetaData, names: Collection[str]) -> int:
    """Bytes of the named columns as the footer states them, text that is repeated counted once."""
    return sum(
        max(
            chunk.total_uncompressed_size,
            chunk.num_values * _WIDTHS.get(chunk.physical_type, 0),
        )
        for chunk in _chunks(metadata, names)
    )


def parquet_batches(
    table: pq.ParquetFile,
    source: BinaryIO,
    groups: list[int],
    names: list[str],
    expansion: Expansion,
) -> Iterator[pa.RecordBatch]:
    """The named columns of some row groups, in batches of about `PIECE_BYTES` at most.

    ``table`` is opened with ``read_dictionary=nested_texts(...)``; ``source`` is the same file.
    """
    metadata = table.metadata
    average = decoded_size(metadata, names) // max(1, metadata.num_rows)
    flat = [chunk for chunk in _chunks(metadata, names) if chunk.path_in_schema in names]
    largest = max((_largest_value(source, chunk) for chunk in flat), default=0)
    rows = max(1, min(_MOST_ROWS, PIECE_BYTES // max(1, average, largest)))
    batches = table.iter_batches(
        batch_size=rows, row_groups=groups, columns=names, use_threads=False
    )
    for batch in batches:
        yield from without_dictionaries(batch, expansion)


def _largest_value(source: BinaryIO, chunk: pq.ColumnChunkMetaData) -> int:
    """No value that may be repeated in a few bytes has more bytes than this.

    It stands in a dictionary, or is the value before it over again, which is made of what stands
    in the column chunk.
    """
    if "DELTA_BYTE_ARRAY" in chunk.encodings:
        return int(chunk.total_uncompressed_size)
    return _dictionary_size(source, chunk)


def _dictionary_size(source: BinaryIO, chunk: pq.ColumnChunkMetaData) -> int:
    """Bytes of the dictionary of a column chunk, none of its values is larger; 0 without one.

    The header of a page begins with its type, 2 for a dictionary, and its size: two numbers in
    Thrift's compact form.
    """
    if not chunk.has_dictionary_page:
        return 0
    source.seek(chunk.dictionary_page_offset)
    header = source.read(16)
    kind, place = _varint(header, 1)
    size, _ = _varint(header, place + 1)
    return size if kind == 2 else chunk.total_uncompressed_size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A signed number, and the place after it."""
    number = shift = 0
    while place < len(data):
        number |= (data[place] & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if data[place - 1] < 0x80:
            break
    return number >> 1, place


def without_dictionaries(
    batch: pa.RecordBatch, expansion: Expansion, piece: int = PIECE_BYTES
) -> Iterator[pa.RecordBatch]:
    """The batch with its text spelled out, in parts of about ``piece`` bytes, or of one row.

    >>> text = pa.array(["ab", "ab", "c"]).dictionary_encode()
    >>> batch = pa.RecordBatch.from_pydict({"text": text})
    >>> parts = without_dictionaries(batch, Expansion("a.parquet", 100), piece=4)
    >>> [part["text"].to_pylist() for part in parts]
    [['ab', 'ab'], ['c']]
    """
    schema = pa.schema([field.with_type(_plain(field.type)) for field in batch.schema])
    if schema.equals(batch.schema):
        expansion.add(batch.nbytes)
        yield batch
        return
    ends = np.cumsum(sum((_sizes(column) for column in batch.columns), np.int64(0)))
    first = 0
    while first < batch.num_rows:
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + piece, side="right")))
        expansion.add(int(ends[stop - 1]) - before)
        columns = [_spelled_out(c.slice(first, stop - first)) for c in batch.columns]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        first = stop


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries, as far as Arrow can cast to it."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


def _spelled_out(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    kind = _plain(column.type)
    return column if kind.equals(column.type) else column.cast(kind)


def _sizes(column: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of every value, spelled out."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        sizes = _sizes(column.dictionary)
        places = pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False)
        found = sizes[places] if len(sizes) else np.zeros(len(column), np.int64)
        return np.asarray(np.where(column.is_valid().to_numpy(zero_copy_only=False), found, 0))
    if is_list(kind):
        ends = np.append(0, np.cumsum(_sizes(pc.list_flatten(column))))
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        stops = np.cumsum(lengths, dtype=np.int64)
        return np.asarray(ends[stops] - ends[stops - lengths])
    if pa.types.is_struct(kind):
        return sum((_sizes(child) for child in column.flatten()), np.zeros(len(column), np.int64))
    if any(is_text(kind) for is_text in TEXTS):
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths, dtype=np.int64)
    return np.full(len(column), -(-column.nbytes // max(1, len(column))), np.int64)


TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
