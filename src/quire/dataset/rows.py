"""Packed rows as the kind of dataset that was given, with boundary columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.collate.rows import LOSS_MASKS
from quire.dataset.records import Packed, Records, is_hf_dataset
from quire.dataset.supervision import IGNORE
from quire.documents import Documents
from quire.formats.arrays import list_lengths, list_values
from quire.gather import require_free
from quire.plan import Plan

Ints = npt.NDArray[np.int64]
TARGETS = ("labels", *LOSS_MASKS)
"""Columns that say which tokens are targets of the loss."""


def with_boundary_columns(
    rows: pa.Table, *, position_ids: bool = False, seq_lengths: bool = False
) -> pa.Table:
    """The rows with ``document_starts`` also in the forms that Trainers read.

    >>> rows = pa.table({"input_ids": [[5, 6, 7], [8]], "document_starts": [[0, 2], [0]]})
    >>> with_boundary_columns(rows, position_ids=True, seq_lengths=True).to_pylist()
    [{'input_ids': [5, 6, 7], 'document_starts': [0, 2], 'position_ids': [0, 1, 0],
      'seq_lengths': [2, 1]},
     {'input_ids': [8], 'document_starts': [0], 'position_ids': [0], 'seq_lengths': [1]}]
    """
    if not (position_ids or seq_lengths):
        return rows
    for name, is_wanted in (("position_ids", position_ids), ("seq_lengths", seq_lengths)):
        if is_wanted:
            require_free(rows.column_names, f"{name}=True", name)
    begins, lengths = _fragments(rows)
    if position_ids:
        positions = np.arange(lengths.sum()) - np.repeat(begins, lengths)
        rows = rows.append_column("position_ids", _lists_like(rows["input_ids"], positions))
    if seq_lengths:
        rows = rows.append_column("seq_lengths", _lists_like(rows["document_starts"], lengths))
    return rows


def trained_tokens(rows: pa.Table) -> int | None:
    """How many tokens of packed rows are targets of the loss; None without labels and loss masks.

    >>> columns = {"input_ids": [[5, 6, 7], [8]], "labels": [[5, 6, -100], [8]]}
    >>> rows = pa.table({**columns, "document_starts": [[0], [0]]})
    >>> trained_tokens(rows)
    1
    """
    names = [name for name in TARGETS if name in rows.column_names]
    if not names:
        return None
    flags = np.concatenate([np.zeros(0, np.bool), *target_flags(rows, names)])
    begins, _ = _fragments(rows)
    return int(np.count_nonzero(flags)) - int(np.count_nonzero(flags[begins]))


def target_flags(rows: pa.Table, names: Sequence[str]) -> Iterator[npt.NDArray[np.bool]]:
    """Whether each token is a target by these columns, a chunk of rows at a time."""
    for batch in rows.select(names).to_batches():
        columns = {name: batch[name].flatten().to_numpy(zero_copy_only=False) for name in names}
        yield np.logical_and.reduce(
            [values != (IGNORE if name == "labels" else 0) for name, values in columns.items()]
        )


def _fragments(rows: pa.Table) -> tuple[Ints, Ints]:
    """First token of every fragment, counted over all rows, and its number of tokens."""
    row_lengths = list_lengths(rows["input_ids"])
    row_begins = np.cumsum(row_lengths) - row_lengths
    begins = np.repeat(row_begins, list_lengths(rows["document_starts"]))
    begins = begins + list_values(rows["document_starts"]).to_numpy()
    return begins, np.diff(begins, append=row_lengths.sum())


def _lists_like(lists: pa.ChunkedArray, values: Ints) -> pa.ChunkedArray:
    """The values in lists as long as these; chunk by chunk, as a chunk has 32-bit offsets."""
    offsets = [np.append(0, np.cumsum(list_lengths(chunk))) for chunk in lists.chunks]
    edges = np.cumsum([0, *(own[-1] for own in offsets)]).tolist()
    chunks = [
        pa.ListArray.from_arrays(
            pa.array(own, pa.int32()), pa.array(values[first:stop], pa.int32())
        )
        for own, (first, stop) in zip(offsets, pairwise(edges), strict=True)
    ]
    return pa.chunked_array(chunks, pa.list_(pa.int32()))


def like_input(
    rows: pa.Table, records: Records, documents: Documents, plan: Plan, tokens_are_given: bool
) -> Packed:
    """A Dataset for a Dataset, else an Arrow table."""
    if not is_hf_dataset(records):
        return rows
    from datasets import Dataset
    from datasets.table import InMemoryTable

    dataset = cast(Dataset, records)
    made_here = [] if tokens_are_given else [*documents.columns.values()]
    seen = f"{dataset._fingerprint} {rows.schema.remove_metadata()}"
    fingerprint = _fingerprint(seen, documents, plan, made_here)
    return Dataset(InMemoryTable(rows), split=dataset.split, fingerprint=fingerprint)


def _fingerprint(seen: str, documents: Documents, plan: Plan, made_here: list[pa.Array]) -> str:
    """A fingerprint of the rows: `Dataset.map` would return cached results for an old one.

    It is computed from the result and not from the options, because a seed may be None and a file
    may change under its name. Tokens that the input's own fingerprint covers are not read again,
    which is why this is not left to Dataset.
    """
    digest = hashlib.sha256(seen.encode())
    arrays = [documents.numbers, plan.row_offsets, plan.documents, plan.starts, plan.stops]
    arrays += [column.to_numpy(zero_copy_only=False) for column in made_here]
    for array in arrays:
        digest.update(memoryview(np.ascontiguousarray(array)))  # type: ignore[arg-type]
    return digest.hexdigest()[:16]
