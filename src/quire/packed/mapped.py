"""A form of the shards that can be mapped into memory: random rows of parquet are far too slow.

It stands in a hidden folder beside the shards (or in one that the user names), is made from shards
whose checksums agree with the manifest, and can be removed at any time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile, OutputError
from quire.files import whole_file
from quire.packed.damage import KEY, checksums, with_checksums
from quire.seals import FORMAT_VERSION

FOLDER = ".mapped"
_INDEX = "index.json"
_BLOCK = 1 << 22


def open_mapped(path: Path, shards: Sequence[Mapping[str, Any]], folder: Path) -> list[pa.Table]:
    """One mapped table a shard; made first, where they are missing or of other shards."""
    if not _is_current(folder, shards):
        try:
            with _locked(folder):
                if not _is_current(folder, shards):  # another rank may have been faster
                    _build(path, shards, folder)
        except OSError as error:
            raise OutputError(
                f"{folder} cannot be written: {error.strerror}; name a folder for the mapped form "
                "with cache_dir= (on the command line --cache-dir)"
            ) from error
    return [map_table(folder / _mapped_name(shard)) for shard in shards]


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
    for left in folder.glob(".*.tmp"):  # of a process that died while it held the lock
        left.unlink()
    sizes = [
        convert_shard(path / s["file"], str(s["sha256"]), folder / _mapped_name(s)) for s in shards
    ]
    index = {"version": FORMAT_VERSION, "sha256": _digests(shards), "sizes": sizes}
    with whole_file(folder / _INDEX) as temporary:
        temporary.write_text(json.dumps(index), encoding="utf-8")


def convert_shard(shard: Path, sha256: str, target: Path, shown: str | None = None) -> int:
    """Write the mapped form of one shard, a row group at a time; its size.

    ``shown`` is what errors call the shard, where it is the copy of another.
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
                    writer.write_batch(batch, custom_metadata=checksums(batch))
    except (pa.ArrowException, UnicodeDecodeError) as error:  # names of columns, too, are read
        raise CorruptFile(f"{shown or shard} cannot be read: {error}") from error
    return target.stat().st_size


def require_sha256(shard: Path, sha256: str, shown: str | None = None) -> None:
    """Raise unless the file holds what the manifest says."""
    digest = hashlib.sha256()
    try:
        with shard.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError:
        raise CorruptFile(f"{shard} is missing; the manifest names it") from None
    if digest.hexdigest() != sha256:
        raise CorruptFile(
            f"{shown or shard} has other bytes than were written (its SHA-256 differs); pack it "
            "again"
        )


def map_table(path: Path) -> pa.Table:
    """A mapped form as a table."""
    try:
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            read = map(reader.get_batch_with_custom_metadata, range(reader.num_record_batches))
            pairs = [(batch, json.loads((about or {})[KEY])) for batch, about in read]
            table = pa.Table.from_batches([batch for batch, _ in pairs], reader.schema)
            table.select(table.column_names).validate()  # names, too, are decoded here
            return with_checksums(table, path, [sums for _, sums in pairs])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptFile(
            f"{path} is damaged: {error}; remove its folder, and it is made again from the shards"
        ) from error


def _digests(shards: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(shard["sha256"]) for shard in shards]


def _mapped_name(shard: Mapping[str, Any]) -> str:
    return f"{Path(str(shard['file'])).stem}.arrow"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process makes the mapped form; the others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
