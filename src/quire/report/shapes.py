"""The shapes of a packed dataset's rows: lengths and boundaries without the tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile
from quire.packed.mapped import require_sha256

Ints = npt.NDArray[np.int64]
_SOURCE = ["document_ids", "document_offsets"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RowShapes:
    """Flat arrays over rows and over fragments, in the order of the shards."""

    row_lengths: Ints
    row_offsets: Ints
    """Row r holds the fragments ``row_offsets[r] : row_offsets[r + 1]``."""
    fragment_lengths: Ints
    document_ids: Ints | None = None
    """Input file x 2^40 + record, one a fragment; None where they were not written."""
    document_offsets: Ints | None = None

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return len(self.row_lengths)

    @property
    def fragments_per_row(self) -> Ints:
        """How many fragments each row holds."""
        return np.diff(self.row_offsets)


def read_shapes(
    path: Path, manifest: dict[str, Any], on_shard: Callable[[int], None] = lambda rows: None
) -> RowShapes:
    """The shapes of all rows; one row group at a time is in memory, and 24 bytes a fragment."""
    parts: list[RowShapes] = []
    for shard in manifest["shards"]:
        try:
            with pq.ParquetFile(path / shard["file"]) as file:
                names = [name for name in _wanted() if name in file.schema_arrow.names]
                own = [_shapes(batch) for batch in file.iter_batches(columns=names)]
            _require_counts(own, shard)
        except (OSError, pa.ArrowException, KeyError, _Unsound) as error:
            raise CorruptFile(
                f"{path / str(shard.get('file'))} cannot be read: {error}; run quire verify"
            ) from error
        parts += own
        on_shard(int(shard["rows"]))
    return _joined(parts)


def planned_shapes(path: Path, manifest: dict[str, Any], entry: dict[str, Any]) -> RowShapes:
    """The shapes of the rows of a plan of an index-only output; no token is read."""
    from quire.plan import Plan

    require_sha256(path / entry["file"], entry["sha256"])
    plan = Plan.load(path / entry["file"])
    tables = [pq.read_table(path / s["file"], columns=["document_id"]) for s in manifest["shards"]]
    ids = _concatenated(t.column("document_id").to_numpy().astype(np.int64) for t in tables)
    if len(ids) <= plan.documents.max(initial=-1):
        raise CorruptFile(
            f"{path} holds {len(ids)} documents but plan {entry['name']!r} has one numbered "
            f"{int(plan.documents.max())}; run quire verify"
        )
    return RowShapes(
        row_lengths=plan.row_lengths.astype(np.int64),
        row_offsets=plan.row_offsets.astype(np.int64),
        fragment_lengths=(plan.stops - plan.starts).astype(np.int64) + plan.options.prefix,
        document_ids=ids[plan.documents],
        document_offsets=plan.starts.astype(np.int64),
    )


class _Unsound(Exception):
    """Columns that cannot be those of rows; the shard's error says why."""


def _require_counts(parts: list[RowShapes], shard: dict[str, Any]) -> None:
    rows = sum(part.num_rows for part in parts)
    tokens = sum(int(part.row_lengths.sum()) for part in parts)
    if (rows, tokens) != (shard["rows"], shard["tokens"]):
        raise _Unsound(
            f"it has {rows} rows of {tokens} tokens but the manifest says {shard['rows']} of "
            f"{shard['tokens']}"
        )


def _wanted() -> list[str]:
    return ["input_ids", "document_starts", *_SOURCE]


def _shapes(batch: pa.RecordBatch) -> RowShapes:
    lengths = np.diff(_offsets(batch, "input_ids"))
    starts, offsets = _flat(batch, "document_starts"), _offsets(batch, "document_starts")
    if not (np.diff(offsets) > 0).all():
        raise _Unsound("a row has no document_starts")
    # A fragment ends where the next one begins, and the last one where its row does.
    stops = np.empty_like(starts)
    stops[:-1] = starts[1:]
    stops[offsets[1:] - 1] = lengths
    if starts[offsets[:-1]].any() or not (starts < stops).all():
        raise _Unsound("document_starts do not begin with 0, or do not increase within their row")
    source = {name: _flat(batch, name) for name in _SOURCE if name in batch.schema.names}
    for name, values in source.items():
        if len(values) != len(starts) or not (values >= 0).all():
            raise _Unsound(f"{name} are negative, or not one for each of document_starts")
    return RowShapes(
        row_lengths=lengths, row_offsets=offsets, fragment_lengths=stops - starts, **source
    )


def _lists(batch: pa.RecordBatch, name: str) -> pa.ListArray:
    lists = batch.column(name)
    is_list = pa.types.is_list(lists.type) or pa.types.is_large_list(lists.type)
    if not is_list or not pa.types.is_integer(lists.type.value_type):
        raise _Unsound(f"{name} are {lists.type} but must be lists of integers")
    if lists.null_count or lists.flatten().null_count:
        raise _Unsound(f"{name} hold a null")
    return lists


def _offsets(batch: pa.RecordBatch, name: str) -> Ints:
    offsets = _lists(batch, name).offsets.to_numpy().astype(np.int64)
    return np.asarray(offsets - offsets[0], np.int64)


def _flat(batch: pa.RecordBatch, name: str) -> Ints:
    return np.asarray(_lists(batch, name).flatten().to_numpy(), np.int64)


def _joined(parts: list[RowShapes]) -> RowShapes:
    has_source = bool(parts) and all(
        part.document_ids is not None and part.document_offsets is not None for part in parts
    )
    counts = _concatenated(part.fragments_per_row for part in parts)
    return RowShapes(
        row_lengths=_concatenated(part.row_lengths for part in parts),
        row_offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        fragment_lengths=_concatenated(part.fragment_lengths for part in parts),
        document_ids=_concatenated(p.document_ids for p in parts) if has_source else None,
        document_offsets=_concatenated(p.document_offsets for p in parts) if has_source else None,
    )


def _concatenated(arrays: Iterable[Ints | None]) -> Ints:
    given = [array for array in arrays if array is not None]
    return np.concatenate([np.zeros(0, np.int64), *given])
