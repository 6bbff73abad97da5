"""Shards as Arrow files that are mapped into memory, since random access to Parquet is slow.

Of a local dataset they are in a hidden folder beside the shards (or in one that the user names); of
a dataset in a store, shards are downloaded on first use and kept in a cache that all datasets,
ranks and runs of a machine share. They are converted from shards whose SHA-256 matches the
manifest, and can be removed at any time.

Hashing all files whenever a dataset is opened would read all of it on every rank. Instead every
record batch (a row group of some megabytes) has a CRC-32, checked on first use: about 20 ms.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.errors import CorruptFile, OutputError, StorageError
from quire.files import sha256_of, whole_file
from quire.seals import FORMAT_VERSION
from quire.storage import RemotePath, each, is_uri, local_copy, sweep_scratch

FOLDER = ".mapped"
_INDEX = "index.json"
_CRC = b"quire.crc32"
_REMEDY = "remove its folder, and it will be rebuilt from the shards"


class CheckedBatch:
    """A record batch with the checksums of its columns."""

    def __init__(self, batch: pa.RecordBatch, checksums: Mapping[str, int], path: Path) -> None:
        self.batch = batch
        self._checksums, self._path = checksums, path
        self._is_checked = False

    def check(self, names: Collection[str]) -> None:
        """Raise if one of these columns is damaged; only the first call computes checksums."""
        if self._is_checked:
            return
        for name in names:
            known = self._checksums.get(name)
            if known is not None and checksum_of(self.batch.column(name)) != known:
                raise CorruptFile(
                    f"{self._path} is damaged: column {name} has another checksum than was "
                    f"written; {_REMEDY}"
                )
        self._is_checked = True


def checksum_of(column: pa.Array) -> int:
    """CRC-32 of the values of a column and of its list offsets.

    >>> checksum_of(pa.array([[1, 2], [3]])) == checksum_of(pa.array([[1], [2, 3]]))
    False
    """
    total = 0
    while isinstance(column, pa.ListArray | pa.LargeListArray):
        total = zlib.crc32(np.ascontiguousarray(column.offsets.to_numpy()).data, total)
        column = column.values
    if isinstance(column, pa.StructArray):  # images
        for field in column.flatten():
            total = _checksum_of_texts(field, total)
        return total
    if isinstance(column, pa.FixedSizeListArray):
        column = column.flatten()
    values = np.ascontiguousarray(column.to_numpy(zero_copy_only=False))
    return zlib.crc32(values.view(np.uint8).data, total)


def _checksum_of_texts(column: pa.Array, total: int) -> int:
    """CRC-32 of texts or bytes, continued from another one."""
    lengths = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False)
    total = zlib.crc32(np.ascontiguousarray(lengths).data, total)
    data = column.buffers()[2]
    if data is None or not len(column):
        return total
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1]
    return zlib.crc32(memoryview(data)[int(ends[0]) : int(ends[-1])], total)


@dataclass(frozen=True, kw_only=True, slots=True)
class MappedShard:
    """One shard in mapped memory."""

    columns: list[str]
    num_rows: int
    batches: list[CheckedBatch]
    """The record batches that hold rows."""
    schema: pa.Schema

    @property
    def table(self) -> pa.Table:
        """All rows, in mapped memory."""
        return pa.Table.from_batches([checked.batch for checked in self.batches], self.schema)

    @classmethod
    def open(cls, path: Path) -> MappedShard:
        """Map a converted shard; nothing but its structure is read."""
        try:
            with pa.memory_map(str(path)) as source:
                reader = pa.ipc.open_file(source)
                read = map(reader.get_batch_with_custom_metadata, range(reader.num_record_batches))
                pairs = [(batch, json.loads((about or {})[_CRC])) for batch, about in read]
                table = pa.Table.from_batches([batch for batch, _ in pairs], reader.schema)
                table.select(table.column_names).validate()  # this decodes names, too
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise CorruptFile(f"{path} is damaged: {error}; {_REMEDY}") from error
        checked = [CheckedBatch(batch, sums, path) for batch, sums in pairs if batch.num_rows]
        return cls(
            columns=table.column_names,
            num_rows=table.num_rows,
            batches=checked,
            schema=reader.schema,
        )


def open_mapped(path: Path, shards: Sequence[Mapping[str, Any]], folder: Path) -> list[MappedShard]:
    """All shards of a local dataset, converted first if they are missing or out of date."""
    if not _is_current(folder, shards):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder / "lock"):
                if not _is_current(folder, shards):  # another rank may have been faster
                    _build(path, shards, folder)
        except OSError as error:
            raise OutputError(
                f"{folder} cannot be written: {error.strerror}; name a folder for the mapped form "
                "with cache_dir= (on the command line --cache-dir)"
            ) from error
    return [MappedShard.open(folder / _mapped_name(shard)) for shard in shards]


def _is_current(folder: Path, shards: Sequence[Mapping[str, Any]]) -> bool:
    try:
        index = json.loads((folder / _INDEX).read_bytes())
        if index["version"] != FORMAT_VERSION or index["sha256"] != _digests(shards):
            return False
        sizes = [(folder / _mapped_name(shard)).stat().st_size for shard in shards]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(index["sizes"] == sizes)


def _build(path: Path, shards: Sequence[Mapping[str, Any]], folder: Path) -> None:
    (folder / _INDEX).unlink(missing_ok=True)
    for left in folder.glob(".*.tmp"):  # from a process that died while it held the lock
        left.unlink()
    sizes = [_convert(path / s["file"], str(s["sha256"]), folder / _mapped_name(s)) for s in shards]
    index = {"version": FORMAT_VERSION, "sha256": _digests(shards), "sizes": sizes}
    with whole_file(folder / _INDEX) as temporary:
        temporary.write_text(json.dumps(index), encoding="utf-8")


def _convert(shard: Path, sha256: str, target: Path, shown: str | None = None) -> int:
    """Convert one shard, a row group at a time; returns the size of the Arrow file.

    ``shown`` is the name for error messages, if the shard is a temporary copy.
    """
    require_sha256(shard, sha256, shown)
    try:
        with (
            whole_file(target) as temporary,
            pq.ParquetFile(shard) as source,
            temporary.open("wb") as sink,
            pa.ipc.new_file(sink, source.schema_arrow) as writer,
        ):
            for number in range(source.metadata.num_row_groups):
                for batch in source.read_row_group(number).combine_chunks().to_batches():
                    sums = {name: checksum_of(batch.column(name)) for name in batch.schema.names}
                    writer.write_batch(batch, custom_metadata={_CRC: json.dumps(sums).encode()})
    except (pa.ArrowException, UnicodeDecodeError) as error:  # column names may be damaged, too
        raise CorruptFile(f"{shown or shard} cannot be read: {error}") from error
    return target.stat().st_size


def require_sha256(path: Path, sha256: str, shown: str | None = None) -> None:
    """Raise unless the file exists and has this SHA-256."""
    found = sha256_of(path)
    if found is None:
        raise CorruptFile(f"{path} is missing; the manifest names it")
    if found != sha256:
        raise CorruptFile(
            f"{shown or path} has other bytes than were written (its SHA-256 differs); pack it "
            "again"
        )


def _digests(shards: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(shard["sha256"]) for shard in shards]


def _mapped_name(shard: Mapping[str, Any]) -> str:
    return f"{Path(str(shard['file'])).stem}.arrow"


def default_cache() -> Path:
    """The folder for downloaded shards, unless the user names one."""
    if given := os.environ.get("QUIRE_CACHE"):
        return Path(given) / "shards"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quire" / "shards"


class ShardCache:
    """The shards and plans of one dataset in a store, downloaded when they are first used."""

    def __init__(self, path: RemotePath, shards: Sequence[Mapping[str, Any]], cache: Path) -> None:
        self._path, self._shards, self._cache = path, shards, cache
        self._is_swept = False

    def __len__(self) -> int:
        return len(self._shards)

    def open(self, number: int) -> MappedShard:
        """One shard, downloaded if it is not in the cache."""
        self.fetch(number)
        try:
            return MappedShard.open(self._cached(number))
        except CorruptFile:  # damaged on this disk, so download it again
            self.forget(number)
            self.fetch(number)
            return MappedShard.open(self._cached(number))

    def open_all(self) -> list[MappedShard]:
        """All shards."""
        return each(self.open, range(len(self)), at_once=True)

    def fetch(self, number: int) -> None:
        """Download one shard, unless it is in the cache."""
        entry, cached = self._shards[number], self._cached(number)
        if cached.exists():
            return
        with self._writing(cached):
            if cached.exists():  # another rank was faster
                return
            self._sweep()
            source = self._path / entry["file"]
            with local_copy(source, within=self._cache) as shard:
                _convert(shard, str(entry["sha256"]), cached, str(source))

    def forget(self, number: int) -> None:
        """Remove one shard from the cache."""
        self._cached(number).unlink(missing_ok=True)

    def plan(self, entry: Mapping[str, Any]) -> Path:
        """The local copy of a plan."""
        cached, source = self._cache / f"{entry['sha256']}.plan", self._path / entry["file"]
        with self._writing(cached):
            if not cached.exists():
                with whole_file(cached) as temporary:
                    source.download(temporary)
                    require_sha256(temporary, str(entry["sha256"]), str(source))
        return cached

    def _sweep(self) -> None:
        if not self._is_swept:
            self._is_swept = True
            sweep_scratch(self._cache)

    def _cached(self, number: int) -> Path:
        # Files of another version may lack the checksums that this one compares.
        return self._cache / f"{self._shards[number]['sha256']}.{FORMAT_VERSION}.arrow"

    @contextmanager
    def _writing(self, file: Path) -> Iterator[None]:
        """One process writes a file of the cache; others on this machine wait."""
        try:
            self._cache.mkdir(parents=True, exist_ok=True)
            with _locked(file.with_suffix(".lock")):
                yield
        except StorageError:
            raise
        except OSError as error:
            if is_uri(error.filename):
                raise CorruptFile(f"{error.filename} is missing; the manifest names it") from error
            raise OutputError(
                f"{self._cache} cannot be written: {error.strerror or error}; name another folder "
                "with cache_dir= (on the command line --cache-dir)"
            ) from error


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
