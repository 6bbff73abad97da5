"""NeMo's packed parquet: ``input_ids``, ``loss_mask`` and ``seq_start_id`` of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.packed.exports.parts import TOKENS, Part
from quire.packed.exports.tables import write_parquet
from quire.packed.rows import STARTS, Row

TOKENS_ONLY = False
TOKENS_PER_PART = 1 << 26
OPTIONS: Mapping[str, tuple[str, ...]] = {}
_SCHEMA = pa.schema(
    {
        "input_ids": pa.list_(pa.int32()),
        "loss_mask": pa.list_(pa.int8()),
        "seq_start_id": pa.list_(pa.int32()),
    }
)
_IGNORED = -100


def names(part: Part) -> list[str]:
    """One parquet file."""
    return [f"{part.stem}.idx.parquet"]


def write(part: Part) -> None:
    """Write one parquet file."""
    write_parquet(part, names(part)[0], _batches(part))


def finish(parts: list[Part]) -> list[str]:
    """Write nothing: no file describes all parts."""
    del parts
    return []


def _batches(part: Part) -> Iterator[pa.RecordBatch]:
    for rows in part.batches():
        columns = [
            [row[TOKENS] for row in rows],
            [_loss_mask(row) for row in rows],
            [row[STARTS] for row in rows],
        ]
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _loss_mask(row: Row) -> npt.NDArray[np.int8]:
    """1 for tokens that are trained: by the mask, else by the labels, else all."""
    if "loss_mask" in row:
        return np.asarray(row["loss_mask"] != 0, np.int8)
    if "labels" in row:
        return np.asarray(row["labels"] != _IGNORED, np.int8)
    return np.ones(len(row[TOKENS]), np.int8)
