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
                parts += [_shapes(batch) for batch in file.iter_batches(columns=names)]
        except (OSError, pa.ArrowException, KeyError) as error:
            raise CorruptFile(
                f"{path / str(shard.get('file'))} cannot be read: {error}; run quire verify"
            ) from error
        on_shard(int(shard["rows"]))
    return _joined(parts)


def planned_shapes(path: Path, manifest: dict[str, Any], entry: dict[str, Any]) -> RowShapes:
    """The shapes of the rows of a plan of an index-only output; no token is read."""
    from quire.plan import Plan

    plan = Plan.load(path / entry["file"])
    tables = [pq.read_table(path / s["file"], columns=["document_id"]) for s in manifest["shards"]]
    ids = _concatenated(t.column("document_id").to_numpy().astype(np.int64) for t in tables)
    return RowShapes(
        row_lengths=plan.row_lengths.astype(np.int64),
        row_offsets=plan.row_offsets.astype(np.int64),
        fragment_lengths=(plan.stops - plan.starts).astype(np.int64) + plan.options.prefix,
        document_ids=ids[plan.documents],
        document_offsets=plan.starts.astype(np.int64),
    )


def _wanted() -> list[str]:
    return ["input_ids", "document_starts", *_SOURCE]


def _shapes(batch: pa.RecordBatch) -> RowShapes:
    ids = batch.column("input_ids")
    starts, offsets = _flat(batch.column("document_starts"))
    lengths = np.diff(ids.offsets.to_numpy()).astype(np.int64)
    # A fragment ends where the next one begins, and the last one where its row does.
    stops = np.empty_like(starts)
    stops[:-1] = starts[1:]
    stops[offsets[1:] - 1] = lengths
    source = {name: _flat(batch.column(name))[0] for name in _SOURCE if name in batch.schema.names}
    return RowShapes(
        row_lengths=lengths, row_offsets=offsets, fragment_lengths=stops - starts, **source
    )


def _flat(lists: pa.ListArray) -> tuple[Ints, Ints]:
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return lists.flatten().to_numpy().astype(np.int64), offsets - offsets[0]


def _joined(parts: list[RowShapes]) -> RowShapes:
    has_source = bool(parts) and all(part.document_ids is not None for part in parts)
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
