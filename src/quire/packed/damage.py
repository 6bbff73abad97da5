"""Checksums of mapped record batches: made when a batch is written, compared when it is first used.

Hashing all files whenever a dataset is opened would read all of it, on every rank. A batch is a row
group of some megabytes; CRC-32, at about 1 GB/s, takes some 20 ms for it, once in a process.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from quire.errors import CorruptFile

KEY = b"quire.crc32"


class CheckedBatch:
    """A record batch, and what tells whether it is as it was written."""

    def __init__(self, batch: pa.RecordBatch, sums: Mapping[str, int], path: str) -> None:
        self.batch = batch
        self._sums, self._path = sums, path
        self._is_checked = False

    def check(self, names: Collection[str]) -> None:
        """Raise if one of these columns is not what was written; only the first call looks."""
        if self._is_checked:
            return
        for name in names:
            if name in self._sums and checksum_of(self.batch.column(name)) != self._sums[name]:
                raise CorruptFile(
                    f"{self._path} is damaged: column {name} has another checksum than was "
                    "written; remove its folder, and it is made again from the shards"
                )
        self._is_checked = True


def checksums(batch: pa.RecordBatch) -> dict[bytes, bytes]:
    """What is written beside a batch."""
    sums = {name: checksum_of(batch.column(name)) for name in batch.schema.names}
    return {KEY: json.dumps(sums).encode()}


def checksum_of(column: pa.Array) -> int:
    """CRC-32 of the values of a column, and of where its lists begin.

    >>> checksum_of(pa.array([[1, 2], [3]])) == checksum_of(pa.array([[1], [2, 3]]))
    False
    """
    total = 0
    while isinstance(column, pa.ListArray | pa.LargeListArray):
        total = zlib.crc32(np.ascontiguousarray(column.offsets.to_numpy()).data, total)
        column = column.values
    values = np.ascontiguousarray(column.to_numpy(zero_copy_only=False))
    return zlib.crc32(values.view(np.uint8).data, total)


def checked_batches(tables: Sequence[pa.Table]) -> Iterator[CheckedBatch]:
    """The batches of mapped tables that hold anything."""
    for table in tables:
        about = json.loads((table.schema.metadata or {}).get(KEY, b"{}"))
        batches = table.to_batches()
        sums = about.get("sums") or [{}] * len(batches)
        for batch, known in zip(batches, sums, strict=True):
            if batch.num_rows:
                yield CheckedBatch(batch, known, about.get("path", "the mapped form"))


def with_checksums(table: pa.Table, path: object, sums: Sequence[Mapping[str, int]]) -> pa.Table:
    """The table, which carries the checksums of its batches."""
    about = {KEY: json.dumps({"path": str(path), "sums": list(sums)})}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **about})
