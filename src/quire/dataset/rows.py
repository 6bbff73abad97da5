"""Packed rows in the kind of the input."""

from __future__ import annotations

import hashlib
from typing import cast

import numpy as np
import pyarrow as pa

from quire.dataset.records import Packed, Records, is_hf_dataset
from quire.documents import Documents
from quire.plan import Plan


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
    """Another one for other rows; `Dataset.map` would give back old results for an old one.

    It is taken from what came out, not from the options: a seed may be None, a file may change
    under its name. Tokens that the input's own fingerprint stands for are not read again, which is
    why it is not left to Dataset.
    """
    digest = hashlib.sha256(seen.encode())
    arrays = [documents.numbers, plan.row_offsets, plan.documents, plan.starts, plan.stops]
    arrays += [column.to_numpy(zero_copy_only=False) for column in made_here]
    for array in arrays:
        digest.update(memoryview(np.ascontiguousarray(array)))  # type: ignore[arg-type]
    return digest.hexdigest()[:16]
