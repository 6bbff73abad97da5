"""Formats whose files are tables: rows in batches of bounded size.

A value that occurs once in a dictionary may be repeated a million times in a few bytes. Text that
is read as dictionaries is therefore decoded in parts, after its size has been computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import InvalidDocument
from quire.formats.arrays import as_objects, is_list, is_text
from quire.formats.compression import Expansion, damage_as_corrupt_file
from quire.formats.fields import Fields, without_nulls
from quire.formats.files import InputFile
from quire.formats.format import BadRecord, Batch, Format, Span, require_reached
from quire.formats.record_kinds import TEXT, WITH_IMAGES, RecordProblem
from quire.formats.token_columns import TOKENS, WATCHED, unfit_records
from quire.storage import AnyPath

PIECE_BYTES = 16 << 20
"""Memory that decoded rows may take at once."""
BYTES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


class Table(Protocol):
    """An open file, of which some columns are read."""

    @property
    def schema(self) -> pa.Schema:
        """All columns of the file."""

    def sizes(self) -> list[tuple[int, int]]:
        """(rows, bytes of the columns that are read) of each part that can be read separately."""

    def rows(self, span: Span) -> Iterator[pa.RecordBatch]:
        """The rows of a span, in batches of about `PIECE_BYTES` at most, without dictionaries."""


class TableFormat(Format):
    """Records are rows.

    ``open_table`` opens a file to read some of its columns; without names, to read its schema.
    """

    unit = "row"
    is_compressible = False

    def __init__(
        self,
        name: str,
        open_table: Callable[[InputFile, Sequence[str]], AbstractContextManager[Table]],
    ) -> None:
        self.name, self._open_table = name, open_table

    def read(self, file: InputFile, span: Span, fields: Fields) -> Iterator[Batch]:
        """The rows of a span."""
        with self.opened(file, _columns_to_read(fields, self.schema(file))) as table:
            yield from _batches(file, table.rows(span), span, fields)

    def spans(self, file: InputFile, fields: Fields, limit: int) -> Iterator[Span]:
        """Every part of the file, or several spans of equally many rows if it is too large."""
        first = 0
        for rows, size in self._sizes(file, fields):
            count = max(1, min(rows, -(-size // limit)))
            edges = [first + rows * part // count for part in range(count + 1)]
            for start, stop in pairwise(edges):
                yield Span(
                    file=file.number, start=start, stop=stop, first_record=start, size=size // count
                )
            first += rows

    def text_size(self, file: InputFile, fields: Fields) -> int:
        """Bytes of the columns that are packed."""
        return sum(size for _, size in self._sizes(file, fields))

    def schema(self, file: InputFile) -> pa.Schema:
        """The columns."""
        with self.opened(file) as table:
            _ = table.schema.names  # in a damaged file they may not be text
            return table.schema

    def _sizes(self, file: InputFile, fields: Fields) -> list[tuple[int, int]]:
        with self.opened(file, _wanted_columns(fields)) as table:
            return table.sizes()

    @contextmanager
    def opened(self, file: InputFile, names: Sequence[str] = ()) -> Iterator[Table]:
        """The file, to read these columns; without names, to read its schema."""
        file.require_unchanged()
        damage = damage_as_corrupt_file(file.path, f"cannot be read as {self.name}")
        with damage, self._open_table(file, names) as table:
            yield table


def _wanted_columns(fields: Fields) -> list[str]:
    """The columns that are packed."""
    if fields.token_columns:
        return [fields.tokens_column if name == TOKENS else name for name in fields.token_columns]
    return [*fields.columns]


def _columns_to_read(fields: Fields, schema: pa.Schema) -> list[str]:
    """The columns that are packed, and those to check or to render, where the file has them."""
    names = _wanted_columns(fields)
    optional = WATCHED if fields.token_columns else fields.optional_columns
    return [*names, *(name for name in optional if name in schema.names and name not in names)]


def require_text(path: AnyPath, schema: pa.Schema, name: str) -> None:
    """Raise unless this column holds text."""
    kind = schema.field(name).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not is_text(kind):
        raise InvalidDocument(f"{path}: column {name!r} holds {kind} but text is needed")


def rows_within(
    file: InputFile, span: Span, batches: Iterable[pa.RecordBatch], first: int = 0
) -> Iterator[pa.RecordBatch]:
    """The rows of a span, out of batches of which the first begins at row ``first``."""
    for batch in batches:
        if span.stop is not None and first >= span.stop:
            return
        low = max(0, span.start - first)
        high = batch.num_rows if span.stop is None else min(batch.num_rows, span.stop - first)
        if low < high:
            yield batch.slice(low, high - low)
        first += batch.num_rows
    require_reached(file, first, span)


def _batches(
    file: InputFile, rows: Iterable[pa.RecordBatch], span: Span, fields: Fields
) -> Iterator[Batch]:
    """Batches of ``fields.batch_bytes`` from the rows of a span."""
    names = _wanted_columns(fields)
    record = span.start
    for part in rows:
        # Batches, and with them shards, do not depend on columns that are only checked.
        size = max(1, fields.batch_bytes * part.num_rows // max(1, part.select(names).nbytes))
        for first in range(0, part.num_rows, size):
            piece = part.slice(first, size)
            if fields.token_columns:
                yield _token_batch(file, piece, record + first, fields)
            else:
                yield _value_batch(file, piece, record + first, names, fields)
        record += part.num_rows


def _token_batch(file: InputFile, rows: pa.RecordBatch, first: int, fields: Fields) -> Batch:
    unfit = unfit_records(rows)
    rows = rows.select(_wanted_columns(fields)).rename_columns(list(fields.token_columns))
    good = [row for row in range(rows.num_rows) if row not in unfit]
    return Batch(
        file=file.number,
        num_bytes=rows.nbytes,
        records=[first + row for row in good],
        values=pa.Table.from_batches([rows.take(pa.array(good, pa.int64())) if unfit else rows]),
        bad=[_bad(file, first + row, unfit[row]) for row in unfit],
    )


def _value_batch(
    file: InputFile, rows: pa.RecordBatch, first: int, names: Sequence[str], fields: Fields
) -> Batch:
    """Texts, conversations, or what else the records hold; ``names`` are the columns of it."""
    batch = Batch(file=file.number, num_bytes=rows.select(names).nbytes)
    columns = [as_objects(column) for column in rows.columns]
    images = fields.images_column if fields.kind in WITH_IMAGES else None  # may be null: no image
    for record, values in enumerate(zip(*columns, strict=True), first):
        row = dict(zip(rows.schema.names, values, strict=True))
        try:
            needed = [name for name in names if name != images]
            _require_readable(row, needed, fields.max_record_bytes)
            if fields.kind != TEXT:
                row = {name: without_nulls(value) for name, value in row.items()}
            batch.values.append(fields.of(row))
            batch.records.append(record)
        except RecordProblem as problem:
            batch.bad.append(_bad(file, record, str(problem), problem.fits))
    return batch


def _require_readable(row: Mapping[str, object], names: Sequence[str], max_bytes: int) -> None:
    for name in names:
        if row[name] is None:
            raise RecordProblem(f"has null under {name!r}")
    for value in row.values():
        if isinstance(value, UnicodeDecodeError):
            raise RecordProblem(f"is not UTF-8: {value.reason}")
        if isinstance(value, str):
            size = len(value) if value.isascii() else len(value.encode("utf-8"))
            if size > max_bytes:
                raise RecordProblem(f"has {size} bytes, over {max_bytes}")


def _bad(file: InputFile, record: int, reason: str, fits: str | None = None) -> BadRecord:
    return BadRecord(file=file.number, record=record, offset=None, reason=reason, fits=fits or "")


def without_dictionaries(
    batch: pa.RecordBatch, expansion: Expansion, piece: int = PIECE_BYTES
) -> Iterator[pa.RecordBatch]:
    """The batch with dictionaries decoded, in parts of about ``piece`` bytes, or of one row.

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
        columns = [_decoded(c.slice(first, stop - first)) for c in batch.columns]
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


def _decoded(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    kind = _plain(column.type)
    return column if kind.equals(column.type) else column.cast(kind)


def _sizes(column: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of every value once it is decoded."""
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
    if any(is_one(kind) for is_one in BYTES):
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        return np.asarray(lengths, dtype=np.int64)
    return np.full(len(column), -(-column.nbytes // max(1, len(column))), np.int64)
