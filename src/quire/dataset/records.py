"""Records in one form: whatever came in as an Arrow table, and packed rows back as it came."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa

from quire.errors import InvalidDocument, InvalidOption

if TYPE_CHECKING:
    import datasets

Records: TypeAlias = "datasets.Dataset | pa.Table | Sequence[Mapping[str, Any]]"
Packed: TypeAlias = "datasets.Dataset | pa.Table"


def is_hf_dataset(records: object) -> bool:
    """Whether this is a `datasets.Dataset`; asked by name, so that nothing is imported for it."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(records).__mro__}
    return "datasets.arrow_dataset.Dataset" in names


def as_table(records: Records) -> pa.Table:
    """The records as an Arrow table; a memory-mapped dataset stays where it is."""
    if isinstance(records, pa.Table):
        return records
    if isinstance(records, pa.RecordBatch):
        return pa.Table.from_batches([records])
    if is_hf_dataset(records):
        dataset = cast("datasets.Dataset", records)
        return dataset.data.table if dataset._indices is None else dataset.with_format("arrow")[:]
    if isinstance(records, Sequence) and not isinstance(records, str | bytes):
        return _table_of_dicts(records)
    if hasattr(records, "__iter__") and "Iterable" in type(records).__name__:
        raise InvalidOption(
            f"{type(records).__name__} is a stream, which cannot be packed as a whole; use "
            "its map with quire.block_tokenize_fn, or load it as a Dataset"
        )
    raise InvalidOption(
        f"{type(records).__name__} cannot be packed; pass a datasets.Dataset, an Arrow table or a "
        "list of dicts"
    )


def _table_of_dicts(records: Sequence[Mapping[str, Any]]) -> pa.Table:
    for number, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise InvalidDocument(f"record {number} is {type(record).__name__} but must be a dict")
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {name: [record.get(name) for record in records] for name in names}
    return pa.table({name: _column(name, values) for name, values in columns.items()})


def _column(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        kinds = sorted({type(value).__name__ for value in values})
        raise InvalidDocument(
            f"column {name!r} mixes values that fit no one type ({', '.join(kinds)}): {error}"
        ) from error


def like_input(rows: pa.Table, records: Records, options: object) -> Packed:
    """The packed rows in the kind of the input: a Dataset for a Dataset, else an Arrow table."""
    if not is_hf_dataset(records):
        return rows
    from datasets import Dataset
    from datasets.table import InMemoryTable

    # Without a fingerprint of its own, Dataset would hash every token.
    dataset = cast(Dataset, records)
    digest = hashlib.sha256(f"{dataset._fingerprint} {options!r}".encode()).hexdigest()
    return Dataset(InMemoryTable(rows), split=dataset.split, fingerprint=digest[:16])
