"""Parquet files: one text column, read in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile, InvalidDocument
from quire.formats.bounded_tables import Expansion, decoded_size, parquet_batches
from quire.stream.records import BadRecord, Record
from quire.stream.state import read_count


class ParquetRows:
    """The texts of one file; the cursor is a row's number, found through the file's footer."""

    def __init__(self, path: Path, cursor: object | None, text_key: str) -> None:
        self._path, self._text_key = path, text_key
        self._file = _open(path, text_key)
        self._expansion = Expansion(path, path.stat().st_size)
        rows = self._file.metadata.num_rows
        what = f"the cursor in {path.name}"
        self._row = 0 if cursor is None else read_count(what, cursor, most=rows)
        self._texts = self._texts_from(self._row)

    def cursor(self) -> int:
        """The number of the next row."""
        return self._row

    def next(self) -> Record:
        """The text of the next row."""
        try:
            text = next(self._texts)
        except pa.ArrowInvalid as error:
            raise CorruptFile(f"{self._path}: row {self._row} cannot be read: {error}") from error
        self._row += 1
        if text is None:
            return BadRecord(f"{self._path.name}: row {self._row - 1} has no {self._text_key!r}")
        return text

    def _texts_from(self, row: int) -> Iterator[str | None]:
        metadata = self._file.metadata
        for group in range(metadata.num_row_groups):
            in_group = metadata.row_group(group).num_rows
            if row >= in_group:
                row -= in_group
                continue
            for batch in self._batches(group):
                yield from batch.column(0)[row:].to_pylist()
                row = max(0, row - len(batch))

    def _batches(self, group: int) -> Iterator[pa.RecordBatch]:
        with self._path.open("rb") as source:
            names, expansion = [self._text_key], self._expansion
            yield from parquet_batches(self._file, source, [group], names, expansion)


def _open(path: Path, text_key: str) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise CorruptFile(f"{path} is no whole parquet file: {error}") from error
    names = file.schema_arrow.names
    if text_key not in names:
        raise InvalidDocument(
            f"{path} has no column {text_key!r} (it has {', '.join(names)}); set data.text_key"
        )
    kind = file.schema_arrow.field(text_key).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise InvalidDocument(f"{path}: column {text_key!r} holds {kind} but must hold strings")
    Expansion(path, path.stat().st_size).require(decoded_size(file.metadata, [text_key]))
    return file
