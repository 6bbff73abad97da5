"""The records of input files, read by other code than that which packs them."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from quire.documents.sound_arrays import require_sound


def values_of(path: Path, kind: str, key: str) -> Iterator[tuple[int, Any]]:
    """(record, value) of every record that holds one."""
    if kind == "txt":
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
        yield 0, text
    elif kind == "parquet":
        record = 0
        for batch in pq.ParquetFile(path).iter_batches(columns=[key]):
            yield from enumerate(_column(batch), record)
            record += batch.num_rows
    elif kind == "arrow":
        record = 0
        for batch in _arrow_batches(path):
            yield from enumerate(_column(batch.select([key])), record)
            record += batch.num_rows
    else:
        yield from _json_values(path, kind, key)


def _column(batch: pa.RecordBatch) -> list[Any]:
    column = batch.column(0)
    try:
        return cast(list[Any], column.to_pylist())
    except UnicodeDecodeError:
        return [_text(value) for value in column]


def _text(value: pa.Scalar) -> Any:  # noqa: ANN401 - whatever the column holds
    try:
        return value.as_py()
    except UnicodeDecodeError:
        return None  # a bad record, which is passed over


def _arrow_batches(path: Path) -> Iterator[pa.RecordBatch]:
    data = pa.memory_map(str(path))
    try:
        reader = pa.ipc.open_file(data)
    except pa.ArrowInvalid:
        data.seek(0)
        batches = iter(pa.ipc.open_stream(data))
    else:
        batches = (reader.get_batch(n) for n in range(reader.num_record_batches))
    for batch in batches:
        require_sound(batch)
        yield batch


def _json_values(path: Path, kind: str, key: str) -> Iterator[tuple[int, Any]]:
    with _opened(path, kind) as stream:
        for record, line in enumerate(stream):
            text = line.removeprefix(b"\xef\xbb\xbf") if record == 0 else line
            if not text.strip():
                continue
            try:
                value = json.loads(text).get(key)
            except (ValueError, RecursionError, AttributeError):
                value = None
            yield record, value


def _opened(path: Path, kind: str) -> IO[bytes]:
    if kind == "jsonl.gz":
        return cast(IO[bytes], gzip.open(path))
    if kind == "jsonl.zst":
        return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))
    return path.open("rb")
