"""Arrow arrays: list columns as flat values, selected rows, and checks of untrusted data."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_NUMBERS = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_null,  # the type of lists that are all empty
)


_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_null,  # the type of a column without values
)
_AS_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}


def require_sound(data: pa.Table | pa.RecordBatch) -> None:
    """Raise `pa.ArrowInvalid` if an offset of the data points outside of it.

    Arrow trusts a file: a wrong offset ends the process, or reveals what else is in its memory.
    Text is checked as bytes: text that is not UTF-8 is a fault of its record, not of the file.

    >>> require_sound(pa.table({"text": ["a", "b"]}))
    """
    for column in data.columns:
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            chunk.validate()
            as_bytes = _AS_BYTES.get(chunk.type)
            (chunk if as_bytes is None else chunk.view(as_bytes)).validate(full=True)


def as_objects(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values as Python objects; for text that is not UTF-8, the `UnicodeDecodeError`."""
    try:
        return cast(list[Any], column.to_pylist())
    except UnicodeDecodeError:
        return [_object_or_error(value) for value in column]


def _object_or_error(value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        return error


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text."""
    return any(is_one(kind) for is_one in _TEXTS)


def is_list(kind: pa.DataType) -> bool:
    """Whether values of this type are lists of any kind."""
    return any(is_one(kind) for is_one in _LISTS)


def is_number_list(kind: pa.DataType) -> bool:
    """Whether values of this type are lists of numbers or booleans."""
    return is_list(kind) and any(is_number(kind.value_type) for is_number in _NUMBERS)


def list_lengths(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """How many values each list has; a null has none."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    return lengths.astype(np.int64, copy=False)  # type: ignore[no-any-return]


def list_values(column: pa.ChunkedArray) -> pa.Array:
    """All values end to end; nothing is copied if the column is one chunk without nulls.

    `list_flatten` respects slices, and nulls that have content; raw offsets do not.
    """
    flat = pc.list_flatten(column)
    if pa.types.is_null(flat.type):
        flat = flat.cast(pa.int64())
    chunks = flat.chunks if isinstance(flat, pa.ChunkedArray) else [flat]
    chunks = [chunk for chunk in chunks if len(chunk)]
    if len(chunks) == 1:
        return chunks[0]
    if not chunks or flat.null_count or pa.types.is_boolean(flat.type):
        return pa.concat_arrays([*chunks, pa.array([], flat.type)])
    return _joined([chunk.to_numpy() for chunk in chunks], flat.type)


def taken_lists(column: pa.ChunkedArray, rows: npt.NDArray[np.int64]) -> pa.LargeListViewArray:
    """The lists of these rows as views of the column's values; no copy if it is one chunk.

    >>> taken_lists(pa.chunked_array([[[1, 2], None, [3]]]), np.array([2, 0, 1])).to_pylist()
    [[3], [1, 2], None]
    """
    lengths = list_lengths(column)
    offsets = np.cumsum(lengths) - lengths
    missing = column.is_null().to_numpy()[rows] if column.null_count else None
    return pa.LargeListViewArray.from_arrays(
        pa.array(offsets[rows]),
        pa.array(lengths[rows]),
        list_values(column),
        mask=None if missing is None else pa.array(missing),
    )


def taken(column: pa.ChunkedArray, rows: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """The values of these rows: taken from each chunk, then put in order.

    Arrow's own `take` joins all chunks first, which copies a large file for a few of its rows.
    """
    if column.num_chunks == 0:
        return column
    ends = np.cumsum([len(chunk) for chunk in column.chunks])
    chunk_of = np.searchsorted(ends, rows, side="right")
    order = np.argsort(chunk_of, kind="stable")
    edges = np.searchsorted(chunk_of[order], np.arange(column.num_chunks + 1))
    parts = [
        chunk.take(pa.array(rows[order[edges[n] : edges[n + 1]]] - (ends[n] - len(chunk))))
        for n, chunk in enumerate(column.chunks)
        if edges[n] < edges[n + 1]
    ]
    places = np.empty(len(rows), dtype=np.int64)
    places[order] = np.arange(len(rows))
    return pa.chunked_array(parts, column.type).take(pa.array(places))


def _joined(parts: list[npt.NDArray[np.generic]], kind: pa.DataType) -> pa.Array:
    """The parts in one array, copied by several threads: most of the time is page faults."""
    ends = np.cumsum([len(part) for part in parts]).tolist()
    whole = np.empty(ends[-1], dtype=parts[0].dtype)

    def copy(part: npt.NDArray[np.generic], end: int) -> None:
        whole[end - len(part) : end] = part

    with ThreadPoolExecutor(cpu_count() or 1) as threads:
        list(threads.map(copy, parts, ends))
    return pa.array(whole, type=kind)
