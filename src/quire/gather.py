"""Move the tokens of documents into rows, once, as the plan says.

An Arrow list view is a list of (offset, length) into a flat array; flattening it copies at memory
speed, several times faster than taking from a list array.
"""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from os import cpu_count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.documents import Documents
from quire.errors import InvalidOption
from quire.plan import Plan

_CHUNK = 1 << 22
"""Tokens copied at once: few enough to divide among threads, enough to hide the overhead."""

IntArray = npt.NDArray[np.int64]


def gather(documents: Documents, plan: Plan, *, keep_sources: bool = False) -> pa.Table:
    """A table with one record per row: the columns of the documents, and ``document_starts``.

    ``keep_sources`` adds ``document_ids`` and ``document_offsets``: where each fragment comes from.
    """
    fragment_offsets = documents.offsets[plan.documents] + plan.starts
    lengths = plan.stops.astype(np.int64) - plan.starts
    views = _views(fragment_offsets, lengths, documents.prefix_at)
    columns = {name: _gathered(values, *views, plan) for name, values in documents.columns.items()}
    columns["document_starts"] = _lists(_starts_in_rows(plan), plan.row_offsets)
    if keep_sources:
        require_free(columns, "keep_sources", "document_ids", "document_offsets")
        columns["document_ids"] = _lists(documents.numbers[plan.documents], plan.row_offsets)
        columns["document_offsets"] = _lists(plan.starts, plan.row_offsets)
    return pa.table(columns)


def require_free(columns: Collection[str], option: str, *names: str) -> None:
    """Raise if a column that the option writes exists already."""
    for name in names:
        if name in columns:
            raise InvalidOption(
                f"{option} writes a column {name!r}, but the input has one of that name; rename "
                "it, or leave it out with columns="
            )


def _views(
    offsets: IntArray, lengths: IntArray, prefix_at: int | None
) -> tuple[IntArray, IntArray]:
    """Offset and length of every piece to copy: the fragments, each after its prefix."""
    if prefix_at is None:
        return offsets, lengths
    both = np.empty((2, len(offsets), 2), dtype=np.int64)
    both[0, :, 0], both[0, :, 1] = prefix_at, offsets
    both[1, :, 0], both[1, :, 1] = 1, lengths
    return both[0].ravel(), both[1].ravel()


def _gathered(
    values: pa.Array, offsets: IntArray, lengths: IntArray, plan: Plan
) -> pa.ChunkedArray:
    row_ends = np.append(0, np.cumsum(plan.row_lengths))
    edges = _row_edges(row_ends)
    per_fragment = 1 + plan.options.prefix

    def chunk(first: int, last: int) -> pa.Array:
        pieces = slice(
            plan.row_offsets[first] * per_fragment, plan.row_offsets[last] * per_fragment
        )
        view = pa.LargeListViewArray.from_arrays(
            pa.array(offsets[pieces]), pa.array(lengths[pieces]), values
        )
        row_offsets = pa.array(row_ends[first : last + 1] - row_ends[first], pa.int32())
        return pa.ListArray.from_arrays(row_offsets, view.flatten())

    spans = list(pairwise(edges))
    with ThreadPoolExecutor(min(len(spans) or 1, cpu_count() or 1)) as threads:
        chunks = list(threads.map(lambda span: chunk(*span), spans))
    return pa.chunked_array(chunks, type=pa.list_(values.type))


def _row_edges(row_ends: IntArray) -> list[int]:
    """First rows of the chunks, and the number of rows."""
    targets = np.arange(_CHUNK, row_ends[-1], _CHUNK)
    inner = np.searchsorted(row_ends, targets)
    edges: list[int] = np.unique(np.concatenate([[0], inner, [len(row_ends) - 1]])).tolist()
    return edges


def _starts_in_rows(plan: Plan) -> IntArray:
    lengths = plan.stops.astype(np.int64) - plan.starts + plan.options.prefix
    begins = np.cumsum(lengths) - lengths
    row_begins = np.repeat(begins[plan.row_offsets[:-1]], np.diff(plan.row_offsets))
    starts: IntArray = begins - row_begins
    return starts


def _lists(values: npt.NDArray[np.integer], row_offsets: npt.NDArray[np.integer]) -> pa.Array:
    small = values.astype(np.int32, copy=False) if values.max(initial=0) < 2**31 else values
    return pa.ListArray.from_arrays(pa.array(row_offsets, pa.int32()), pa.array(small))
