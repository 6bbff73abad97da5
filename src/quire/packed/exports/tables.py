"""Rows as Arrow record batches: for parquet files and for datasets on disk."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quire.files import whole_file
from quire.packed.exports.parts import Part, fragment_lengths
from quire.packed.rows import STARTS, Row

SEQ_LENGTHS = "seq_lengths"


def record_batches(part: Part, boundaries: str) -> Iterator[pa.RecordBatch]:
    """The rows with their boundaries, as starts or as TRL's lengths of sequences."""
    for rows in part.batches():
        columns = {name: [row[name] for row in rows] for name in part.per_token}
        columns[boundaries] = [
            fragment_lengths(row).astype(np.int32) if boundaries == SEQ_LENGTHS else row[STARTS]
            for row in rows
        ]
        yield _batch(columns, rows[0])


def _batch(
    columns: dict[str, list[np.ndarray[tuple[int], np.dtype[np.generic]]]], first: Row
) -> pa.RecordBatch:
    kinds = {
        name: pa.from_numpy_dtype(first[name].dtype) if name in first else pa.int32()
        for name in columns
    }
    arrays = [pa.array(values, pa.list_(kinds[name])) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def write_parquet(part: Part, name: str, batches: Iterator[pa.RecordBatch]) -> None:
    """Write the batches to one parquet file of the part."""
    first = next(batches)
    with (
        whole_file(part.folder / name) as temporary,
        pq.ParquetWriter(
            temporary, first.schema, compression="zstd", use_dictionary=False
        ) as writer,
    ):
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
