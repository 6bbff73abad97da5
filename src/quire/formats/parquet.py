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

from quire.errors import InvalidState
from quire.formats.compression import Expansion, damage_as_corrupt_file
from quire.formats.fields import Fields
from quire.formats.files import InputFile
from quire.formats.format import Batch, Format, Span
from quire.formats.tables import (
    PIECE_BYTES,
    columns_to_read,
    row_batches,
    row_spans,
    rows_within,
    wanted_columns,
    without_dictionaries,
)
from quire.storage import AnyPath, RemotePath

_MOST_ROWS = 1024
_WIDTHS = {"INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BOOLEAN": 1}


class Parquet(Format):
    """Records are rows; a span of rows is found through the footer."""

    name = "parquet"
    unit = "row"

    def read(self, file: InputFile, span: Span, fields: Fields) -> Iterator[Batch]:
        """The rows of a span."""
        names = columns_to_read(fields, self.schema(file))
        with _opened(file, names) as table, _open_for_headers(file.path) as source:
            rows = _rows(table, source, span, names, Expansion(file.path, file.size))
            yield from row_batches(file, rows, span, fields)

    def spans(self, file: InputFile, fields: Fields, limit: int) -> Iterator[Span]:
        """Every row group, or parts of one that is too large."""
        return row_spans(file, _row_groups(file, wanted_columns(fields)), limit)

    def text_size(self, file: InputFile, fields: Fields) -> int:
        """Bytes of the wanted columns, as the footer states them."""
        return sum(size for _, size in _row_groups(file, wanted_columns(fields)))

    def schema(self, file: InputFile) -> pa.Schema:
        """The columns."""
        with _opened(file) as table:
            _ = table.schema_arrow.names  # in a damaged file they may not be text
            return table.schema_arrow


FORMAT = Parquet()


@contextmanager
def _opened(file: InputFile, names: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """The file, to read these columns; without names, to read its footer."""
    file.require_unchanged()
    with damage_as_corrupt_file(file.path, "cannot be read as parquet"):
        with _parquet_file(file.path) as table:
            if not names:
                yield table
                return
            metadata = table.metadata
        Expansion(file.path, file.size).require(_decoded_size(metadata, names))
        with _parquet_file(file.path, metadata, _nested_texts(metadata, names)) as table:
            yield table


def _parquet_file(
    path: AnyPath, metadata: pq.FileMetaData | None = None, dictionaries: Sequence[str] = ()
) -> pq.ParquetFile:
    return pq.ParquetFile(
        path.arrow_file() if isinstance(path, RemotePath) else path,
        metadata=metadata,
        read_dictionary=list(dictionaries),
        page_checksum_verification=True,
        pre_buffer=isinstance(path, RemotePath),
    )


def _open_for_headers(path: AnyPath) -> BinaryIO:
    """The file for a few small reads: from a store, only these bytes are fetched."""
    return path.open_ranges() if isinstance(path, RemotePath) else path.open("rb")


def _row_groups(file: InputFile, names: Sequence[str]) -> list[tuple[int, int]]:
    """(rows, bytes of the named columns) of each row group."""
    with _opened(file, names) as table:
        metadata = table.metadata
        return [
            (
                metadata.row_group(number).num_rows,
                sum(c.total_uncompressed_size for c in _chunks(metadata, names, [number])),
            )
            for number in range(metadata.num_row_groups)
        ]


def _chunks(
    metadata: pq.FileMetaData, names: Collection[str], groups: Sequence[int] | None = None
) -> Iterator[pq.ColumnChunkMetaData]:
    for number in range(metadata.num_row_groups) if groups is None else groups:
        group = metadata.row_group(number)
        for chunk in (group.column(i) for i in range(group.num_columns)):
            if chunk.path_in_schema.partition(".")[0] in names:
                yield chunk


def _nested_texts(metadata: pq.FileMetaData, names: Collection[str]) -> list[str]:
    """The columns of text inside the named ones: those to be read as dictionaries."""
    leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]
    return [
        leaf.path
        for leaf in leaves
        if leaf.physical_type == "BYTE_ARRAY"
        and leaf.path not in names
        and leaf.path.partition(".")[0] in names
    ]


def _decoded_size(metadata: pq.FileMetaData, names: Collection[str]) -> int:
    """Bytes of the named columns as the footer states them; repeated text counts once."""
    return sum(
        max(
            chunk.total_uncompressed_size,
            chunk.num_values * _WIDTHS.get(chunk.physical_type, 0),
        )
        for chunk in _chunks(metadata, names)
    )


def _rows(
    table: pq.ParquetFile, source: BinaryIO, span: Span, names: list[str], expansion: Expansion
) -> Iterator[pa.RecordBatch]:
    """The rows of a span, in batches of about `PIECE_BYTES` at most."""
    first, groups, skipped = 0, [], 0
    for number in range(table.metadata.num_row_groups):
        rows = table.metadata.row_group(number).num_rows
        if first + rows <= span.start:
            skipped = first + rows
        elif span.stop is None or first < span.stop:
            groups.append(number)
        first += rows
    if span.start > first:
        raise InvalidState(f"{expansion.path} has {first} rows, but {span.start} were read from it")
    if groups:
        batches = table.iter_batches(
            batch_size=_rows_at_once(table.metadata, source, names),
            row_groups=groups,
            columns=names,
            use_threads=False,
        )
        parts = (part for batch in batches for part in without_dictionaries(batch, expansion))
        yield from rows_within(parts, span, skipped)


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
