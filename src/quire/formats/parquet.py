"""Parquet files, decoded in pieces of bounded size.

A compressed column may hold gigabytes of zeros. Sizes are therefore taken from the footer before
anything is decoded, and so few rows are decoded at once that they fit a piece even if each of them
is as large as the whole dictionary. Text inside lists is read as dictionaries, which are decoded
in parts: a row may hold any number of values there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from quire.formats.compression import Expansion
from quire.formats.files import InputFile
from quire.formats.format import Span
from quire.formats.tables import (
    PIECE_BYTES,
    Table,
    TableFormat,
    rows_within,
    without_dictionaries,
)
from quire.storage import AnyPath, RemotePath

_MOST_ROWS = 1024
_FEW_BYTES = 4096
"""With a buffer, bytes of a column chunk are read when they are decoded, not when it is opened."""
_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BOOLEAN": 1}


@contextmanager
def _open(file: InputFile, names: Sequence[str]) -> Iterator[Table]:
    """The file, to read these columns; without names, to read its footer."""
    with _parquet_file(file.path, buffer_size=_FEW_BYTES) as table:
        if not names:
            yield _ParquetTable(table, file, names)
            return
        metadata = table.metadata
        _require_sound_chunks(table, _leaves(metadata, names))
    Expansion(file.path, file.size).require(_decoded_size(metadata, names))
    with _parquet_file(file.path, metadata, _nested_texts(metadata, names)) as table:
        yield _ParquetTable(table, file, names)


FORMAT = TableFormat("parquet", _open)


class _ParquetTable:
    """Its parts are row groups, which are found through the footer."""

    def __init__(self, table: pq.ParquetFile, file: InputFile, names: Sequence[str]) -> None:
        self._table, self._file, self._names = table, file, names
        self._metadata = table.metadata

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema_arrow

    def sizes(self) -> list[tuple[int, int]]:
        """Rows and bytes, as the footer states them."""
        return [
            (
                self._metadata.row_group(number).num_rows,
                sum(
                    chunk.total_uncompressed_size
                    for chunk in _chunks(self._metadata, self._names, [number])
                ),
            )
            for number in range(self._metadata.num_row_groups)
        ]

    def rows(self, span: Span) -> Iterator[pa.RecordBatch]:
        first, groups, skipped = 0, [], 0
        for number in range(self._metadata.num_row_groups):
            rows = self._metadata.row_group(number).num_rows
            if first + rows <= span.start:
                skipped = first + rows
            elif span.stop is None or first < span.stop:
                groups.append(number)
            first += rows
        return rows_within(self._file, span, self._decoded(groups), skipped)

    def _decoded(self, groups: list[int]) -> Iterator[pa.RecordBatch]:
        expansion = Expansion(self._file.path, self._file.size)
        with _open_for_headers(self._file.path) as source:
            batch_size = _rows_at_once(self._metadata, source, self._names)
        for batch in self._table.iter_batches(
            batch_size=batch_size, row_groups=groups, columns=self._names, use_threads=False
        ):
            yield from without_dictionaries(batch, expansion)


def _parquet_file(
    path: AnyPath,
    metadata: pq.FileMetaData | None = None,
    dictionaries: Sequence[str] = (),
    buffer_size: int = 0,
) -> pq.ParquetFile:
    return pq.ParquetFile(
        path.arrow_file() if isinstance(path, RemotePath) else path,
        metadata=metadata,
        read_dictionary=list(dictionaries),
        page_checksum_verification=True,
        pre_buffer=isinstance(path, RemotePath) and not buffer_size,
        buffer_size=buffer_size,
    )


def _require_sound_chunks(table: pq.ParquetFile, leaves: Sequence[int]) -> None:
    """Raise if the footer describes one of these columns wrongly in any row group.

    Describing a chunk, `RowGroupMetaData.column` aborts the process for what opening the chunk
    reports as an error, such as size statistics of another length (pyarrow 26.0.1). No value is
    read for no rows, which only the reader beneath the file accepts.
    """
    for group in range(table.metadata.num_row_groups):
        for _ in table.reader.iter_batches(0, [group], leaves, use_threads=False):
            pass


def _leaves(metadata: pq.FileMetaData, names: Collection[str]) -> list[int]:
    """The numbers of the leaf columns of the named ones."""
    schema = metadata.schema
    return [
        number
        for number in range(metadata.num_columns)
        if schema.column(number).path.partition(".")[0] in names
    ]


def _open_for_headers(path: AnyPath) -> BinaryIO:
    """The file for a few small reads: from a store, only these bytes are fetched."""
    return path.open_ranges() if isinstance(path, RemotePath) else path.open("rb")


def _chunks(
    metadata: pq.FileMetaData, names: Collection[str], groups: Sequence[int] | None = None
) -> Iterator[pq.ColumnChunkMetaData]:
    """The named columns, which were required to be sound: no others are looked at."""
    leaves = _leaves(metadata, names)
    for number in range(metadata.num_row_groups) if groups is None else groups:
        group = metadata.row_group(number)
        yield from (group.column(leaf) for leaf in leaves)


def _nested_texts(metadata: pq.FileMetaData, names: Collection[str]) -> list[str]:
    """The columns of text inside the named ones: those to be read as dictionaries."""
    leaves = [metadata.schema.column(number) for number in _leaves(metadata, names)]
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    return [path for path in texts if path not in names]


def _decoded_size(metadata: pq.FileMetaData, names: Collection[str]) -> int:
    """Bytes of the named columns as the footer states them; repeated text counts once."""
    return sum(
        max(
            chunk.total_uncompressed_size,
            chunk.num_values * _WIDTHS.get(chunk.physical_type, 0),
        )
        for chunk in _chunks(metadata, names)
    )


def _rows_at_once(metadata: pq.FileMetaData, source: BinaryIO, names: Collection[str]) -> int:
    average = _decoded_size(metadata, names) // max(1, metadata.num_rows)
    flat = [chunk for chunk in _chunks(metadata, names) if chunk.path_in_schema in names]
    largest = max((_largest_value(source, chunk) for chunk in flat), default=0)
    return max(1, min(_MOST_ROWS, PIECE_BYTES // max(1, int(average), largest)))


def _largest_value(source: BinaryIO, chunk: pq.ColumnChunkMetaData) -> int:
    """An upper bound for the bytes of a value that may be repeated in a few bytes.

    Such a value is in a dictionary, or it repeats the value before it, which consists of bytes of
    the column chunk.
    """
    if "DELTA_BYTE_ARRAY" in chunk.encodings:
        return int(chunk.total_uncompressed_size)
    return _dictionary_size(source, chunk)


def _dictionary_size(source: BinaryIO, chunk: pq.ColumnChunkMetaData) -> int:
    """Bytes of the dictionary of a column chunk, which bound its values; 0 without one.

    The header of a page begins with its type, 2 for a dictionary, and its size: two numbers in
    Thrift's compact form.
    """
    if not chunk.has_dictionary_page:
        return 0
    source.seek(chunk.dictionary_page_offset)
    header = source.read(16)
    kind, place = _varint(header, 1)
    size, _ = _varint(header, place + 1)
    return size if kind == 2 else int(chunk.total_uncompressed_size)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A signed number, and the place after it."""
    number = shift = 0
    while place < len(data):
        number |= (data[place] & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if data[place - 1] < 0x80:
            break
    return number >> 1, place
