"""Shards of a store, fetched when a row of theirs is asked for, and kept on the local disk.

A shard is kept as its mapped form under its SHA-256, which is compared first, so that it is fetched
once for all datasets, ranks and runs of a machine. Whatever is kept can be removed at any time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from quire.errors import CorruptFile, OutputError, StorageError
from quire.files import whole_file
from quire.packed.mapped import convert_shard, map_table, require_sha256
from quire.packed.row_sources import Row, ShardRows, chosen_columns
from quire.seals import FORMAT_VERSION
from quire.storage import RemotePath, each, is_uri, local_copy, sweep_scratch


def default_cache() -> Path:
    """Where shards are kept unless the user names a folder."""
    if given := os.environ.get("QUIRE_CACHE"):
        return Path(given) / "shards"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quire" / "shards"


class Shards:
    """The shards of one dataset in a store, as mapped tables."""

    def __init__(self, path: RemotePath, entries: Sequence[Mapping[str, Any]], cache: Path) -> None:
        self._path, self._entries, self._cache = path, entries, cache
        self._is_swept = False

    def __len__(self) -> int:
        return len(self._entries)

    def table(self, number: int) -> pa.Table:
        """One shard, fetched first where it is not kept."""
        self.fetch(number)
        kept = self._kept(number)
        try:
            return map_table(kept)
        except CorruptFile:  # damaged on this disk: what the store has is whole
            self.forget(number)
            self.fetch(number)
            return map_table(kept)

    def tables(self) -> list[pa.Table]:
        """All shards."""
        return list(each(self.table, range(len(self)), at_once=True))

    def fetch(self, number: int) -> None:
        """Keep one shard, if it is not kept."""
        entry, kept = self._entries[number], self._kept(number)
        if kept.exists():
            return
        with _writing(self._cache), _locked(kept.with_suffix(".lock")):
            if kept.exists():  # another rank was faster
                return
            self._sweep()
            with local_copy(self._path / entry["file"], within=self._cache) as shard:
                shown = str(self._path / entry["file"])
                convert_shard(shard, str(entry["sha256"]), kept, shown)

    def forget(self, number: int) -> None:
        """Remove one shard, so that it is fetched again."""
        self._kept(number).unlink(missing_ok=True)

    def _sweep(self) -> None:
        if not self._is_swept:
            self._is_swept = True
            sweep_scratch(self._cache)

    def _kept(self, number: int) -> Path:
        # Of another version, what is kept there may lack the checksums that this one compares.
        name = f"{self._entries[number]['sha256']}.{FORMAT_VERSION}.arrow"
        return self._cache / name


class FetchedRows:
    """Rows that stand in shards of a store; how many stand in which, the manifest says."""

    def __init__(
        self, shards: Shards, counts: Sequence[int], names: list[str], wanted: Sequence[str] | None
    ) -> None:
        self.columns = chosen_columns(names, wanted)
        self._shards, self._names = shards, names
        self._first_rows = np.cumsum([0, *counts])
        self._opened: dict[int, ShardRows] = {}

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def __getitem__(self, row: int) -> Row:
        shard = self.shard_of(row)
        place = row - int(self._first_rows[shard])
        try:
            return self._rows_of(shard)[place]
        except CorruptFile:  # damaged on this disk: what the store has is whole
            self._opened.pop(shard, None)
            self._shards.forget(shard)
            return self._rows_of(shard)[place]

    def shard_of(self, row: int) -> int:
        """The number of the shard that a row stands in."""
        return int(np.searchsorted(self._first_rows, row, side="right")) - 1

    def _rows_of(self, shard: int) -> ShardRows:
        if shard not in self._opened:
            table = self._shards.table(shard)
            count = int(self._first_rows[shard + 1] - self._first_rows[shard])
            if table.num_rows != count or table.column_names != self._names:
                raise CorruptFile(
                    f"shard {shard} has {table.num_rows} rows of {', '.join(table.column_names)}, "
                    f"but the manifest says {count} of {', '.join(self._names)}; pack it again"
                )
            self._opened[shard] = ShardRows([table], self.columns)
        return self._opened[shard]


def fetched_plan(path: RemotePath, entry: Mapping[str, Any], cache: Path) -> Path:
    """The local copy of a plan."""
    kept = cache / f"{entry['sha256']}.plan"
    with _writing(cache), _locked(kept.with_suffix(".lock")):
        if not kept.exists():
            with whole_file(kept) as temporary:
                (path / entry["file"]).download(temporary)
                require_sha256(temporary, str(entry["sha256"]), str(path / entry["file"]))
    return kept


@contextmanager
def _writing(cache: Path) -> Iterator[None]:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        yield
    except StorageError:
        raise
    except OSError as error:
        if is_uri(error.filename):
            raise CorruptFile(f"{error.filename} is missing; the manifest names it") from error
        raise OutputError(
            f"{cache} cannot be written: {error.strerror or error}; name another folder with "
            "cache_dir= (on the command line --cache-dir)"
        ) from error


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One process fetches a shard; the others on this machine wait for it."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
