"""Parquet and Arrow files: records are rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from quire.corpus.inputs import InputFile
from quire.corpus.options import CorpusOptions
from quire.corpus.readers.batches import BadRecord, Batch, Conversation, Span
from quire.errors import CorruptFile
from quire.formats.arrow_messages import require_bounded_messages
from quire.formats.bounded_tables import (
    Expansion,
    decoded_size,
    nested_texts,
    parquet_batches,
    without_dictionaries,
)
from quire.formats.list_columns import TOKENS
from quire.formats.sound_arrays import require_sound
from quire.formats.unfit import WATCHED, unfit_records
from quire.storage import AnyPath, RemotePath
from quire.text.chat import without_nulls

Table: TypeAlias = pq.ParquetFile | pa.RecordBatchFileReader | pa.RecordBatchStreamReader


def read_table(
    file: InputFile, span: Span, options: CorpusOptions, columns: Mapping[str, str]
) -> Iterator[Batch]:
    """The rows of a span."""
    names = wanted_names(options, columns)
    record = span.start
    for rows in _rows(file, span, names, _beside(options)):
        # Shards end where they end without the columns beside.
        size = max(1, options.batch_bytes * rows.num_rows // max(1, rows.select(names).nbytes))
        for first in range(0, rows.num_rows, size):
            yield _batch(file, rows.slice(first, size), record + first, names, options)
        record += rows.num_rows


def wanted_names(options: CorpusOptions, columns: Mapping[str, str]) -> list[str]:
    """The columns that are read."""
    if not options.pretokenized:
        return [options.messages_key or options.text_key]
    return [options.tokens_key if name == TOKENS else name for name in columns]


def _beside(options: CorpusOptions) -> Sequence[str]:
    """The columns that are read as well, where there are such."""
    if options.messages_key is not None and options.tools_key is not None:
        return (options.tools_key,)
    return WATCHED if options.pretokenized else ()


def table_schema(file: InputFile) -> pa.Schema:
    """The columns of a file."""
    with _opened(file) as table:
        schema = _schema(table)
        _ = schema.names  # of a damaged file they may be no text
        return schema


def _schema(table: Table) -> pa.Schema:
    return table.schema_arrow if isinstance(table, pq.ParquetFile) else table.schema


def table_chunks(file: InputFile, names: list[str]) -> list[tuple[int, int]]:
    """(rows, bytes of the wanted columns) of each part that can be read alone."""
    with _opened(file, names) as table:
        if isinstance(table, pq.ParquetFile):
            return [_row_group(table.metadata.row_group(i), names) for i in _groups(table)]
        return [(b.num_rows, b.select(names).nbytes) for b in _record_batches(table)]


def _groups(table: pq.ParquetFile) -> range:
    return range(table.metadata.num_row_groups)


def _row_group(group: pq.RowGroupMetaData, names: list[str]) -> tuple[int, int]:
    columns = [group.column(i) for i in range(group.num_columns)]
    wanted = [c for c in columns if c.path_in_schema.partition(".")[0] in names]
    return group.num_rows, sum(c.total_uncompressed_size for c in wanted)


def _rows(
    file: InputFile, span: Span, names: list[str], others: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Rows ``start:stop`` of the file, some at a time, with those of the others that it has."""
    with _opened(file) as table:
        there = set(_schema(table).names) - set(names)
        names = [*names, *(name for name in others if name in there)]
    expansion = Expansion(file.path, file.size)
    with _opened(file, names) as table:
        if isinstance(table, pq.ParquetFile):
            with _at_any_place(file.path) as source:
                yield from _parquet_rows(table, source, span, names, expansion)
            return
        batches = (batch.select(names) for batch in _record_batches(table))
        for batch in _within(batches, 0, span.start, span.stop):
            yield from without_dictionaries(batch, expansion)


def _at_any_place(path: AnyPath) -> BinaryIO:
    """The file for a few small reads: of a store, no more than these bytes are fetched."""
    return path.open_ranges() if isinstance(path, RemotePath) else path.open("rb")


def _parquet_rows(
    table: pq.ParquetFile,
    source: BinaryIO,
    span: Span,
    names: list[str],
    expansion: Expansion,
) -> Iterator[pa.RecordBatch]:
    first, groups, skipped = 0, [], 0
    for number in _groups(table):
        rows = table.metadata.row_group(number).num_rows
        if first + rows <= span.start:
            skipped = first + rows
        elif span.stop is None or first < span.stop:
            groups.append(number)
        first += rows
    if groups:
        batches = parquet_batches(table, source, groups, names, expansion)
        yield from _within(batches, skipped, span.start, span.stop)


def _within(
    batches: Iterator[pa.RecordBatch], first: int, start: int, stop: int | None
) -> Iterator[pa.RecordBatch]:
    """Rows ``start:stop`` out of batches of which the first begins at row ``first``."""
    for batch in batches:
        if stop is not None and first >= stop:
            return
        low = max(0, start - first)
        high = batch.num_rows if stop is None else min(batch.num_rows, stop - first)
        if low < high:
            yield batch.slice(low, high - low)
        first += batch.num_rows


def _batch(
    file: InputFile, rows: pa.RecordBatch, first: int, names: list[str], options: CorpusOptions
) -> Batch:
    unfit = unfit_records(rows) if options.pretokenized else {}
    beside = _tools(rows, options)
    rows = rows.select(names)
    if options.pretokenized and options.tokens_key != TOKENS:
        rows = rows.rename_columns([TOKENS if n == options.tokens_key else n for n in names])
    batch = Batch(file=file.number, num_bytes=rows.nbytes)
    if options.pretokenized:
        batch.bad = [_bad(file, first + row, unfit[row]) for row in unfit]
        good = [row for row in range(rows.num_rows) if row not in unfit]
        batch.records = [first + row for row in good]
        batch.values = pa.Table.from_batches(
            [rows.take(pa.array(good, pa.int64())) if unfit else rows]
        )
        return batch
    name = rows.schema.names[0]
    for record, value in enumerate(rows.column(0), first):
        try:
            text = value.as_py()
            if text is None:
                raise ValueError(f"has null under {name!r}")
            if (size := _size(text)) > options.max_record_bytes:
                raise ValueError(f"has {size} bytes, over {options.max_record_bytes}")
            if options.messages_key is not None:
                tools = None if beside is None else beside[record - first].as_py()
                text = Conversation(without_nulls(text), without_nulls(tools))
        except UnicodeDecodeError as error:
            batch.bad.append(_bad(file, record, f"is not UTF-8: {error.reason}"))
        except ValueError as error:
            batch.bad.append(_bad(file, record, str(error)))
        else:
            batch.values.append(text)
            batch.records.append(record)
    return batch


def _tools(rows: pa.RecordBatch, options: CorpusOptions) -> pa.Array | None:
    there = options.messages_key is not None and options.tools_key in rows.schema.names
    return rows.column(options.tools_key) if there else None


def _size(value: object) -> int:
    """Bytes of a text, or characters where counting the bytes could not change the answer."""
    if not isinstance(value, str):
        return 0
    return len(value) if value.isascii() else len(value.encode("utf-8"))


def _bad(file: InputFile, record: int, reason: str) -> BadRecord:
    return BadRecord(file=file.number, record=record, offset=None, reason=reason)


@contextmanager
def _opened(file: InputFile, names: Sequence[str] = ()) -> Iterator[Table]:
    """The file, to read these columns; without names, to read its schema."""
    file.require_unchanged()
    try:
        if file.kind == "parquet":
            with _parquet(file, names) as table:
                yield table
            return
        with _arrow_source(file.path) as source:
            with _arrow_reader(file, source) as reader:
                if not names:
                    yield reader
                    return
                places = [reader.schema.get_field_index(name) for name in names]
            require_bounded_messages(source, Expansion(file.path, file.size), set(names))
            with _arrow_reader(file, source, sorted(places)) as reader:
                yield reader
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(file.path, RemotePath):
            file.path.raise_if_store_failed(error)
        raise CorruptFile(f"{file.path} cannot be read as {file.kind}: {error}") from error


def _parquet(file: InputFile, names: Sequence[str]) -> pq.ParquetFile:
    if not names:
        return _parquet_file(file.path)
    with _parquet_file(file.path) as table:
        metadata = table.metadata
    Expansion(file.path, file.size).require(decoded_size(metadata, names))
    return _parquet_file(file.path, metadata, nested_texts(metadata, names))


def _parquet_file(
    path: AnyPath, metadata: pq.FileMetaData | None = None, dictionaries: Sequence[str] = ()
) -> pq.ParquetFile:
    is_remote = isinstance(path, RemotePath)
    return pq.ParquetFile(
        path.arrow_file() if isinstance(path, RemotePath) else path,
        metadata=metadata,
        read_dictionary=list(dictionaries),
        page_checksum_verification=True,
        pre_buffer=is_remote,
    )


def _arrow_reader(
    file: InputFile, source: pa.NativeFile, places: Sequence[int] = ()
) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    source.seek(0)
    is_file = file.size >= 6 and source.read(6) == b"ARROW1"
    source.seek(0)
    options = pa.ipc.IpcReadOptions(included_fields=list(places) or None)
    opened = pa.ipc.open_file if is_file else pa.ipc.open_stream
    return opened(source, options=options)


def _arrow_source(path: AnyPath) -> pa.NativeFile:
    return path.arrow_file() if isinstance(path, RemotePath) else pa.memory_map(str(path))


def _record_batches(
    table: pa.RecordBatchFileReader | pa.RecordBatchStreamReader,
) -> Iterator[pa.RecordBatch]:
    is_file = isinstance(table, pa.RecordBatchFileReader)
    for batch in map(table.get_batch, range(table.num_record_batches)) if is_file else table:
        require_sound(batch)
        yield batch
