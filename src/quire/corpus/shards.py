"""Parquet shards whose bytes depend only on their records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import InvalidOption
from quire.files import whole_file
from quire.formats.token_columns import TOKENS
from quire.gather import require_free
from quire.storage import AnyPath

_GROUP_TOKENS = 1 << 22
"""Tokens in a row group: small enough to be read one at a time, large enough to compress."""
_WRITTEN_AT_ONCE = 1 << 17
"""Values; with Arrow's 1,024 writing takes 4 to 7 % longer."""
_PIECE_TOKENS = 1 << 18
"""Tokens that Arrow is given at once: the levels of a whole row group do not fit the CPU's cache,
and writing takes a fifth longer."""
DOCUMENT_ID, LENGTH = "document_id", "length"


def shard_name(partition: int, piece: int) -> str:
    """The file name of a shard; shards sorted by name are in input order.

    >>> shard_name(7, 0)
    'shard-00007-000.parquet'
    """
    return f"shard-{partition:05d}-{piece:03d}.parquet"


def shard_schema(columns: Mapping[str, str], keep_sources: bool) -> pa.Schema:
    """The columns of a shard of rows, with the same types in every shard."""
    others = {name: kind for name, kind in columns.items() if name != TOKENS}
    kinds = {TOKENS: pa.int32(), **{n: pa.type_for_alias(kind) for n, kind in others.items()}}
    kinds["document_starts"] = pa.int32()
    if keep_sources:
        require_free(columns, "keep_sources", "document_ids", "document_offsets")
        kinds |= {"document_ids": pa.int64(), "document_offsets": pa.int64()}
    return pa.schema({name: pa.list_(kind) for name, kind in kinds.items()})


def document_schema(columns: Mapping[str, str]) -> pa.Schema:
    """The columns of a shard of documents."""
    for name in (DOCUMENT_ID, LENGTH):
        if name in columns:
            raise InvalidOption(
                f"an index-only output has its own column {name!r}; rename the input's"
            )
    rows = shard_schema(columns, keep_sources=True)  # those that plans make of them
    lists = [field for field in rows if field.name in (TOKENS, *columns)]
    return pa.schema([(DOCUMENT_ID, pa.int64()), (LENGTH, pa.int64()), *lists])


def write_shard(
    path: AnyPath,
    records: pa.Table,
    record_length: int,
    complete: Callable[[pa.Table], pa.Table] | None = None,
) -> tuple[str, int]:
    """Write a shard as a whole; returns its SHA-256 and size.

    ``complete`` is applied to the records of each row group just before they are written.
    """
    with (
        whole_file(path) as temporary,
        _HashingFile(temporary) as file,
        pq.ParquetWriter(
            file,
            records.schema,
            compression="zstd",
            compression_level=1,
            write_batch_size=_WRITTEN_AT_ONCE,
            use_dictionary=False,
            write_statistics=False,
            version="2.6",
            data_page_version="1.0",
        ) as writer,
    ):
        size = max(1, _GROUP_TOKENS // record_length)
        if complete is None:
            pieces = _in_pieces(records, max(1, _PIECE_TOKENS // record_length))
            writer.write_table(pieces, row_group_size=size)
        else:
            for first in range(0, records.num_rows, size):
                writer.write_table(complete(records.slice(first, size)), row_group_size=size)
    return file.digest.hexdigest(), file.size


def _in_pieces(records: pa.Table, num_rows: int) -> pa.Table:
    """The same records in chunks of this many rows; nothing is copied."""
    if not records.num_rows:
        return records
    firsts = range(0, records.num_rows, num_rows)
    return pa.concat_tables([records.slice(first, num_rows) for first in firsts])


def open_new(path: Path) -> BinaryIO:
    """A new file, opened for writing."""
    return path.open("xb")


class _HashingFile:
    """A file that is hashed while it is written, so that it need not be read again."""

    def __init__(self, path: Path) -> None:
        self.digest = hashlib.sha256()
        self.size = 0
        self._file = open_new(path)

    def __enter__(self) -> _HashingFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        self.digest.update(view)
        self.size += len(view)
        while view:  # a file may write less than it is given
            view = view[self._file.write(view) :]
        return len(data)

    def close(self) -> None:
        """Do nothing when Arrow closes it; leaving the context closes it."""
