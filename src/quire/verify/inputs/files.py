"""The files behind the inputs of a packed dataset, and the records in them."""

from __future__ import annotations

import glob
import gzip
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import InvalidOption
from quire.storage import AnyPath, Named, RemotePath, as_path, matching
from quire.storage.hub import hub_dataset
from quire.verify.inputs.packer_formats import read_packed_format

Values: TypeAlias = dict[str, Any]
"""What a record holds under the requested keys; keys that it lacks are left out."""
Records: TypeAlias = Iterator[tuple[int, Values | None]]
"""(number, values) of every record; None for one that is too large or cannot be read."""
FILE_SHIFT = 40
"""A document's number is the number of its file times 2 to this power, plus that of its record."""
_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def find_files(manifest: Mapping[str, Any], inputs: Sequence[Named]) -> list[AnyPath]:
    """The file of every input that the manifest lists, checked by name, size and fingerprint."""
    columns = {entry.get("text_column") for entry in manifest["inputs"]}
    candidates = [pair for one in inputs for pair in _files_below(_without_column(one, columns))]
    found = []
    for entry in manifest["inputs"]:
        match = _match(entry["name"], candidates)
        if match is None:
            raise InvalidOption(
                f"{entry['name']} was packed but is not among the given inputs; add it with "
                "--inputs"
            )
        candidates.remove(match)
        path = match[0]
        if (size := path.stat().st_size) != entry["bytes"]:
            raise InvalidOption(
                f"{path} has {size} bytes but had {entry['bytes']} when it was packed; give the "
                "original file, or pack again"
            )
        if (digest := _fingerprint(path, size)) != entry["fingerprint"]:
            raise InvalidOption(
                f"{path} was changed after it was packed: its fingerprint is {digest}, not "
                f"{entry['fingerprint']}; give the original file, or pack again"
            )
        found.append(path)
    return found


def read_records(path: Path, kind: str, keys: Sequence[str], most_bytes: int) -> Records:
    """The records of an input, by a reader of its own if its kind has one."""
    return READERS.get(_base(kind), read_packed_format)(path, kind, keys, most_bytes)


def has_own_reader(kind: str) -> bool:
    """Whether such inputs are read without the packer's format.

    >>> has_own_reader("jsonl.gz"), has_own_reader("csv")
    (True, False)
    """
    return _base(kind) in READERS


def _without_column(given: Named, columns: set[str | None]) -> Named:
    """An input as it was named, without the column of text after its colon."""
    path, _, column = str(given).rpartition(":")
    return path if path and column in columns and not Path(str(given)).exists() else given


def _match(name: str, candidates: Sequence[tuple[AnyPath, str]]) -> tuple[AnyPath, str] | None:
    """The first file of that name below what was given, else the first whose path ends with it."""
    same = (pair for pair in candidates if pair[1] == name)
    ending = (pair for pair in candidates if f"/{_absolute(pair[0])}".endswith(f"/{name}"))
    return next(same, None) or next(ending, None)


def _absolute(path: AnyPath) -> str:
    return path.as_posix() if isinstance(path, RemotePath) else os.path.abspath(path)  # noqa: PTH100


def _files_below(given: Named) -> list[tuple[AnyPath, str]]:
    """(path, name relative to what was given) of every file, ordered by name."""
    path, text = as_path(hub_dataset(given) or given), str(given)
    root: AnyPath = path
    files: Sequence[AnyPath]
    if isinstance(path, RemotePath):
        if glob.has_magic(path.inside):
            root, files = matching(path)
        else:
            files = path.files_below() or [path]
    else:
        tops = [path]
        if glob.has_magic(text) and not path.exists():
            root = Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))
            tops = [Path(found) for found in glob.glob(text, recursive=True)]  # noqa: PTH207
        below = {file for top in tops for file in (top.rglob("*") if top.is_dir() else [top])}
        files = [file for file in below if not file.is_dir()]
    pairs = [(file, _relative_name(file, root)) for file in files]
    return sorted(pairs, key=lambda pair: pair[1])


def _relative_name(file: AnyPath, root: AnyPath) -> str:
    return file.name if file == root else file.relative_to(root).as_posix()  # type: ignore[arg-type]


def _fingerprint(path: AnyPath, size: int) -> str:
    """SHA-256 of the size and the content; for a large file, of 16 blocks of 64 KiB."""
    digest = hashlib.sha256(str(size).encode())
    with path.open_ranges() if isinstance(path, RemotePath) else path.open("rb") as file:
        if size <= 16 << 16:
            digest.update(file.read())
            return digest.hexdigest()
        for block in range(16):
            file.seek((size - (1 << 16)) * block // 15)
            digest.update(file.read(1 << 16))
    return digest.hexdigest()


def _base(kind: str) -> str:
    return kind.partition(".")[0]


def _text_records(path: Path, kind: str, keys: Sequence[str], most_bytes: int) -> Records:
    with _open_decompressed(path, kind) as stream:
        text = _small_text(stream.read(), most_bytes)
    yield 0, None if text is None else {keys[0]: text}


def _small_text(data: bytes, most_bytes: int) -> str | None:
    try:
        return data.decode() if len(data) <= most_bytes else None
    except UnicodeDecodeError:
        return None


def _table_records(path: Path, kind: str, keys: Sequence[str], most_bytes: int) -> Records:
    number = 0
    for batch in _parquet_batches(path, keys) if kind == "parquet" else _arrow(path, keys):
        for row in _rows(batch):
            yield number, None if row is None or _has_long_text(row, most_bytes) else row
            number += 1


def _parquet_batches(path: Path, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        names = [name for name in file.schema_arrow.names if name in keys]
        yield from file.iter_batches(columns=names, batch_size=1024)


def _arrow(path: Path, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file or stream; other columns are not decompressed."""
    with pa.memory_map(str(path)) as data:
        is_file = data.size() >= 6 and data.read(6) == b"ARROW1"
        open_reader = pa.ipc.open_file if is_file else pa.ipc.open_stream
        data.seek(0)
        names = open_reader(data).schema.names
        places = [place for place, name in enumerate(names) if name in keys]
        data.seek(0)
        reader = open_reader(data, options=pa.ipc.IpcReadOptions(included_fields=places))
        batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
        for batch in batches:
            _require_valid(batch)
            yield batch


def _require_valid(batch: pa.RecordBatch) -> None:
    """Raise `pa.ArrowInvalid` if an offset points outside the data, which could end the process.

    Texts are checked as bytes: invalid UTF-8 makes a bad record, not a bad file.
    """
    for column in batch.columns:
        column.validate()
        as_bytes = _AS_BYTES.get(column.type)
        (column if as_bytes is None else column.view(as_bytes)).validate(full=True)


def _rows(batch: pa.RecordBatch) -> Iterator[Values | None]:
    """The rows of a batch; None for one that is not valid UTF-8."""
    try:
        yield from _valid_rows(batch)
    except UnicodeDecodeError:
        if batch.num_rows == 1:
            yield None
        else:
            for number in range(batch.num_rows):
                yield from _rows(batch.slice(number, 1))


def _valid_rows(batch: pa.RecordBatch) -> list[Values]:
    """The rows, without the nulls that Arrow adds to messages and tools for keys of others."""
    rows = cast(list[Values], batch.to_pylist())
    structs = [field.name for field in batch.schema if "struct<" in str(field.type)]
    if structs:
        rows = [{**row, **{name: _without_nulls(row[name]) for name in structs}} for row in rows]
    return rows


def _has_long_text(row: Values, most_bytes: int) -> bool:
    texts = (value for value in row.values() if isinstance(value, str))
    return any(len(text.encode()) > most_bytes for text in texts)


def _json_records(path: Path, kind: str, keys: Sequence[str], most_bytes: int) -> Records:
    with _open_decompressed(path, kind) as stream:
        for number, line in enumerate(stream):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line
            is_small = len(line) <= most_bytes + line.endswith(b"\n")
            if text.strip() or not is_small:
                yield number, _json_values(text, keys) if is_small else None


def _open_decompressed(path: Path, kind: str) -> IO[bytes]:
    if kind.endswith(".gz"):
        return cast(IO[bytes], gzip.open(path))
    if kind.endswith(".zst"):
        return io.BufferedReader(pa.input_stream(str(path), compression="zstd"))
    return path.open("rb")


def _without_nulls(value: Any) -> Any:  # noqa: ANN401
    """Without the keys that Arrow adds: all structs of a column have the same."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _json_values(line: bytes, keys: Sequence[str]) -> Values | None:
    try:
        record = json.loads(
            line.decode(), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant
        )
        json.dumps(record, ensure_ascii=False).encode()  # fails on half a surrogate pair
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    return {key: record[key] for key in keys if key in record}


def _without_repeats(pairs: list[tuple[str, Any]]) -> Values:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key occurs twice")
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


READERS = {
    "txt": _text_records,
    "jsonl": _json_records,
    "parquet": _table_records,
    "arrow": _table_records,
}
"""Kinds of inputs, without their compression, and the readers that the packer does not share."""
