"""Arrow files, and folders that `save_to_disk` wrote, with a list of tokens in each record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from quire.errors import InvalidDocument, unknown_name
from quire.formats.arrays import is_number_list, require_sound
from quire.formats.arrow import require_bounded_messages
from quire.formats.compression import Expansion, damage_as_corrupt_file
from quire.formats.expanded import expanded, on_this_disk
from quire.formats.files import saved_dataset
from quire.formats.token_columns import PER_TOKEN
from quire.formats.token_files import TOKENS, Column, Ints, TokenBytes, TokenFile
from quire.storage import AnyPath

OPTIONS: Mapping[str, tuple[str, ...]] = {"column": ()}
_MAGIC = b"ARROW1"
_END = b"\xff\xff\xff\xff\0\0\0\0"
"""Of a stream; without it, one that is cut off between two batches seems whole."""


def recognizes(path: AnyPath) -> bool:
    """Whether this is the list of files of a saved dataset, or an Arrow file outside of one."""
    if path.name == "state.json":
        return (path.parent / "dataset_info.json").is_file()
    return path.suffix == ".arrow" and not (path.parent / "state.json").is_file()


def main_file(path: AnyPath) -> AnyPath | None:
    """The file to open for a path."""
    return path if path.suffix in (".arrow", ".json") and path.is_file() else None


def open_files(
    path: AnyPath, options: Mapping[str, str], known: Mapping[str, Ints]
) -> list[TokenFile]:
    """The records of one file, or of every file of a saved dataset."""
    del known
    if path.suffix == ".arrow":
        return [open_arrow(path, options)]
    return [open_arrow(file, options, index=[path]) for file, _ in saved_dataset(path.parent)]


def open_arrow(
    path: AnyPath,
    options: Mapping[str, str],
    *,
    index: Sequence[AnyPath] = (),
    held_in: Path | None = None,
) -> TokenFile:
    """The records of one Arrow file; those of ``path`` may be ``held_in`` another file."""
    local = held_in or on_this_disk(path)
    with damage_as_corrupt_file(path, "cannot be read as arrow"):
        with pa.memory_map(str(local)) as source:
            name = options.get("column", TOKENS)
            require_bounded_messages(source, Expansion(path, local.stat().st_size), {name})
            source.seek(0)
            whole = source.read_buffer()
        batches, schema = _batches(whole)
        names = _columns(path, schema, name)
        found = _Lists(path, whole, {one: schema.field(n).type for one, n in names.items()})
        for batch in batches:
            selected = batch.select(list(names.values()))
            require_sound(selected)
            if not found.add(selected):
                plain = expanded(path, "arrow", lambda target: _write_plain(local, target))
                return open_arrow(path, options, index=index, held_in=plain)
    data = TokenBytes(path, local)
    columns = {
        one: Column(data, found.types[one], np.concatenate([np.zeros(0, np.int64), *places]))
        for one, places in found.places.items()
    }
    lengths = np.concatenate([np.zeros(0, np.int64), *found.lengths])
    return TokenFile(path=path, index=index, lengths=lengths, columns=columns)


def _batches(whole: pa.Buffer) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
    source = pa.BufferReader(whole)
    if whole.size >= len(_MAGIC) and whole.slice(0, len(_MAGIC)).to_pybytes() == _MAGIC:
        reader = pa.ipc.open_file(source)
        return map(reader.get_batch, range(reader.num_record_batches)), reader.schema
    if whole.slice(max(0, whole.size - len(_END))).to_pybytes() != _END:
        raise pa.ArrowInvalid("it is cut off: a stream ends with a mark")
    stream = pa.ipc.open_stream(source)
    return iter(stream), stream.schema


def _write_plain(source: Path, target: Path) -> None:
    with pa.memory_map(str(source)) as mapped:
        batches, schema = _batches(mapped.read_buffer())
        with target.open("wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)


def _columns(path: AnyPath, schema: pa.Schema, name: str) -> dict[str, str]:
    """The columns with a value per token, by their names in rows."""
    if name not in schema.names:
        raise unknown_name(f"column of {path}", name, schema.names)
    if not is_number_list(kind := schema.field(name).type):
        raise InvalidDocument(f"{path}: column {name!r} holds {kind}, not lists of token ids")
    others = [
        one for one in PER_TOKEN if one in schema.names and is_number_list(schema.field(one).type)
    ]
    return {TOKENS: name} | {one: one for one in others}


class _Lists:
    """Where the values of every list of some columns are in a file."""

    def __init__(self, path: AnyPath, whole: pa.Buffer, kinds: Mapping[str, pa.DataType]) -> None:
        self._path, self._whole = path, whole
        self._num_records = 0
        self.lengths: list[Ints] = []
        self.places: dict[str, list[Ints]] = {name: [] for name in kinds}
        self.types: dict[str, np.dtype[Any]] = {
            name: np.dtype(kind.value_type.to_pandas_dtype()) for name, kind in kinds.items()
        }

    def add(self, batch: pa.RecordBatch) -> bool:
        """Note the lists of a batch; false if its values are not in the file as they are."""
        expected: Ints | None = None
        for name, column in zip(self.types, batch.columns, strict=True):
            values, dtype = column.values, self.types[name]
            if column.null_count or values.null_count or pa.types.is_boolean(values.type):
                raise InvalidDocument(
                    f"{self._path}: the column of {name} has nulls or booleans in the "
                    f"batch of record {self._num_records}; write numbers"
                )
            offsets = column.offsets.to_numpy().astype(np.int64)
            lengths = np.diff(offsets)
            if expected is not None and (lengths != expected).any():
                at = self._num_records + int(np.argmax(lengths != expected))
                raise InvalidDocument(
                    f"{self._path}: record {at} has another number of {name} than of tokens"
                )
            place = self._place(values, dtype)
            if place is None:
                return False
            expected = lengths
            self.places[name].append(place + offsets[:-1] * dtype.itemsize)
        self.lengths.append(lengths)
        self._num_records += batch.num_rows
        return True

    def _place(self, values: pa.Array, dtype: np.dtype[Any]) -> int | None:
        """The byte of the file at which the values are; None if they were decompressed."""
        buffer = values.buffers()[1]
        if buffer is None or not len(values):
            return 0
        at = int(buffer.address) - int(self._whole.address)
        inside = at >= 0 and at + buffer.size <= self._whole.size
        return at + values.offset * dtype.itemsize if inside else None
