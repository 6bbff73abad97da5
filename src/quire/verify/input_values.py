"""The records of input files, read by other code than that which packs them."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq

from quire.formats.sound_arrays import require_sound
from quire.text.chat import without_nulls

Values: TypeAlias = dict[str, Any]
"""What a record holds under the keys that were asked for; keys that it lacks are left out."""


def records_of(
    path: Path, kind: str, keys: Sequence[str], most_bytes: int
) -> Iterator[tuple[int, Values | None]]:
    """(record, its values) of every record; None for one that is too large or cannot be read."""
    if kind == "txt":
        yield 0, _whole_text(path, keys[0], most_bytes)
    elif kind in ("parquet", "arrow"):
        record = 0
        for batch in _batches(path, kind, keys):
            rows = _rows(batch)
            yield from ((record + n, _small(row, most_bytes)) for n, row in enumerate(rows))
            record += batch.num_rows
    else:
        yield from _json_records(path, kind, keys, most_bytes)


def _whole_text(path: Path, key: str, most_bytes: int) -> Values | None:
    data = path.read_bytes()
    try:
        return {key: data.decode()} if len(data) <= most_bytes else None
    except UnicodeDecodeError:
        return None


def _batches(path: Path, kind: str, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if kind == "parquet":
        with pq.ParquetFile(path) as file:
            names = [name for name in file.schema_arrow.names if name in keys]
            yield from file.iter_batches(columns=names, batch_size=1024)
        return
    for batch in _arrow_batches(path, keys):
        require_sound(batch)
        yield batch


def _arrow_batches(path: Path, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The columns of these names alone: others, which may be compressed, are not expanded."""
    data = pa.memory_map(str(path))
    is_file = data.size() >= 6 and data.read(6) == b"ARROW1"
    opened = pa.ipc.open_file if is_file else pa.ipc.open_stream
    data.seek(0)
    names = opened(data).schema.names
    places = [place for place, name in enumerate(names) if name in keys]
    data.seek(0)
    reader = opened(data, options=pa.ipc.IpcReadOptions(included_fields=places))
    if is_file:
        return (reader.get_batch(n) for n in range(reader.num_record_batches))
    return iter(reader)


def _rows(batch: pa.RecordBatch) -> list[Values | None]:
    try:
        return [*_plain_rows(batch)]
    except UnicodeDecodeError:
        return [_row(batch, number) for number in range(batch.num_rows)]


def _row(batch: pa.RecordBatch, number: int) -> Values | None:
    try:
        return _plain_rows(batch.slice(number, 1))[0]
    except UnicodeDecodeError:
        return None


def _plain_rows(batch: pa.RecordBatch) -> list[Values]:
    """The rows; messages and tools without the nulls that Arrow adds for keys that others have."""
    rows = cast(list[Values], batch.to_pylist())
    structs = [field.name for field in batch.schema if "struct<" in str(field.type)]
    if structs:
        rows = [{**row, **{name: without_nulls(row[name]) for name in structs}} for row in rows]
    return rows


def _small(row: Values | None, most_bytes: int) -> Values | None:
    """The row, unless a text in it is over the limit."""
    texts = [] if row is None else [value for value in row.values() if isinstance(value, str)]
    return None if any(len(text.encode()) > most_bytes for text in texts) else row


def _json_records(
    path: Path, kind: str, keys: Sequence[str], most_bytes: int
) -> Iterator[tuple[int, Values | None]]:
    with _opened(path, kind) as stream:
        for record, line in enumerate(stream):
            text = line.removeprefix(b"\xef\xbb\xbf") if record == 0 else line
            is_small = len(line) <= most_bytes + line.endswith(b"\n")
            if text.strip() or not is_small:
                yield record, _json_values(text, keys) if is_small else None


def _opened(path: Path, kind: str) -> IO[bytes]:
    if kind == "jsonl.gz":
        return cast(IO[bytes], gzip.open(path))
    if kind == "jsonl.zst":
        return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))
    return path.open("rb")


def _json_values(line: bytes, keys: Sequence[str]) -> Values | None:
    try:
        record = json.loads(
            line.decode(), object_pairs_hook=_distinct, parse_constant=_refuse_constant
        )
        json.dumps(record, ensure_ascii=False).encode()  # half a surrogate pair fails here
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    return {key: record[key] for key in keys if key in record}


def _distinct(pairs: list[tuple[str, Any]]) -> Values:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key comes twice")
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")
