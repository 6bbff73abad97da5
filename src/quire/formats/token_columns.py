"""Documents that are tokenized already: list columns of an Arrow table.

Records that are padded, or rows that are packed already, must not be packed (again); the columns
that show this are checked whether or not they are packed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.documents import Documents
from quire.errors import InvalidDocument, InvalidOption, unknown_name
from quire.formats.arrays import is_number_list, list_lengths, list_values
from quire.formats.bad_records import BadRecords
from quire.ledger import Ledger, Tally
from quire.plan.build import spans

TOKENS = "input_ids"
MASK = "attention_mask"
PER_TOKEN = (
    "labels",
    "loss_mask",
    MASK,
    "token_type_ids",
    "assistant_masks",
    "completion_mask",
)
"""Columns that always have one value per token: another length is an error."""
_POSITIONS = "position_ids"
_FIRST = {MASK: 0, _POSITIONS: 1}
"""The first position at which a zero shows that a record must not be packed."""
_OF_PACKED_ROWS = ("document_starts", "seq_lengths", "seq_start_id")
_OF_NEMO = {"seq_start_id": ", or name the format nemo, which finds them in its rows"}
WATCHED = (*_FIRST, *_OF_PACKED_ROWS)


def documents_from_columns(
    table: pa.Table,
    columns: Sequence[str] | None = None,
    *,
    bad: BadRecords | None = None,
    vocab_size: int | None = None,
) -> Documents:
    """Every record with a token as a document, with its parallel columns.

    ``columns=None`` takes all list columns of numbers that have one value per token everywhere.
    """
    require_unpacked([field.name for field in table.schema if is_number_list(field.type)])
    bad = bad or BadRecords(table.num_rows)
    tokens, lengths = _flat(table, TOKENS, bad)
    _require_vocabulary(tokens, lengths, vocab_size)
    flat = {TOKENS: tokens}
    for name in _parallel_names(table, columns):
        values, other = _flat(table, name, bad)
        _compare(name, lengths, other, bad)
        flat[name] = values if np.array_equal(lengths, other) else _aligned(values, lengths, other)
    for record, reason in unfit_records(table).items():
        bad.add(record, reason)
    return as_documents(flat, lengths, bad)


def as_documents(
    columns: dict[str, pa.Array], lengths: npt.NDArray[np.int64], bad: BadRecords
) -> Documents:
    """All records that are neither bad nor empty, from flat columns and the length of each."""
    good = bad.good_of(len(lengths))
    usable = good & (lengths > 0)
    empty = int((good & (lengths == 0)).sum())
    return Documents(
        columns=columns,
        offsets=(np.cumsum(lengths) - lengths)[usable],
        lengths=lengths[usable],
        numbers=np.flatnonzero(usable),
        is_paired=bad.has_pairs(len(lengths)),
        ledger=bad.ledger(lengths) + Ledger(documents=Tally(input=empty, dropped={"empty": empty})),
    )


def _flat(table: pa.Table, name: str, bad: BadRecords) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """All values of a list column end to end, and the length of each list."""
    column = _column(table, name)
    if column.null_count:
        for record in np.flatnonzero(column.is_null().to_numpy()).tolist():
            bad.add(record, f"has no {name}")
    lengths = list_lengths(column)
    values = list_values(column)
    if values.null_count:
        ends = np.cumsum(lengths)
        places = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        for record in np.unique(np.searchsorted(ends, places, side="right")).tolist():
            bad.add(record, f"has a null inside its {name}")
        values = values.fill_null(pa.scalar(0).cast(values.type))
    return values, lengths


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise unknown_name("column", name, table.column_names)
    column = table[name]
    if not is_number_list(column.type):
        raise InvalidDocument(
            f"column {name!r} has type {column.type} but lists of numbers are needed"
        )
    return column


def _parallel_names(table: pa.Table, columns: Sequence[str] | None) -> list[str]:
    if columns is not None:
        return [name for name in columns if name != TOKENS]
    lists = [field.name for field in table.schema if is_number_list(field.type)]
    present = table[TOKENS].is_valid().to_numpy()
    lengths = list_lengths(table[TOKENS])[present]
    return [
        name
        for name in lists
        if name != TOKENS and (name in PER_TOKEN or _all_as_long(table[name], present, lengths))
    ]


def _all_as_long(
    column: pa.ChunkedArray, present: npt.NDArray[np.bool], lengths: npt.NDArray[np.int64]
) -> bool:
    valid = column.is_valid().to_numpy()[present]
    return bool(valid.all()) and np.array_equal(list_lengths(column)[present], lengths)


def _compare(
    name: str,
    lengths: npt.NDArray[np.int64],
    other: npt.NDArray[np.int64],
    bad: BadRecords,
) -> None:
    for record in np.flatnonzero((lengths != other) & bad.good).tolist():
        bad.add(record, f"has {lengths[record]} {TOKENS} but {other[record]} {name}")


def _aligned(
    values: pa.Array, lengths: npt.NDArray[np.int64], other: npt.NDArray[np.int64]
) -> pa.Array:
    """Values moved to the positions of the tokens; those of bad records do not matter."""
    source = values.to_numpy(zero_copy_only=False)
    moved = np.zeros(int(lengths.sum()), dtype=source.dtype)
    same = lengths == other
    here, there = np.cumsum(lengths) - lengths, np.cumsum(other) - other
    moved[spans(here[same], lengths[same])] = source[spans(there[same], lengths[same])]
    return pa.array(moved, type=values.type)


def _require_vocabulary(
    tokens: pa.Array, lengths: npt.NDArray[np.int64], vocab_size: int | None
) -> None:
    if not pa.types.is_integer(tokens.type):
        raise InvalidDocument(f"column {TOKENS!r} holds {tokens.type} but token ids are integers")
    extremes = pc.min_max(tokens).as_py() if len(tokens) else {"min": 0, "max": 0}
    wrong = extremes["min"] if extremes["min"] < 0 else extremes["max"]
    if wrong >= 0 and (vocab_size is None or wrong < vocab_size):
        return
    place = pc.index(tokens, pa.scalar(wrong, tokens.type)).as_py()
    record = int(np.searchsorted(np.cumsum(lengths), place, side="right"))
    limit = "" if vocab_size is None else f" to {vocab_size - 1}"
    raise InvalidDocument(
        f"record {record} has token id {wrong} but ids are from 0{limit}; the data was tokenized "
        "with another tokenizer, or is damaged"
    )


def require_unpacked(names: Collection[str], what: str = "the dataset") -> None:
    """Raise for columns that only packed rows have: their documents would be joined."""
    for name in _OF_PACKED_ROWS:
        if name in names:
            raise InvalidOption(
                f"{what} is packed already: it has {name!r}, and packing its rows again would join "
                f"their documents; pack the original documents{_OF_NEMO.get(name, '')}"
            )


def unfit_records(table: pa.Table | pa.RecordBatch) -> dict[int, str]:
    """The records that must not be packed, and why.

    >>> unfit_records(pa.table({"attention_mask": [[1], [1, 0, 0]]}))
    {1: 'is padded: its attention_mask has 2 zeros'}
    """
    return {
        record: _problem(name, count)
        for name in _FIRST
        if name in table.schema.names and is_number_list(table.schema.field(name).type)
        for record, count in _zeros(table[name], _FIRST[name]).items()
    }


def unfit_record(record: Mapping[str, Any]) -> str | None:
    """What is wrong with a single record, if anything."""
    for name in _OF_PACKED_ROWS:
        if isinstance(record.get(name), list):
            return f"is packed already: it has {name!r}"
    for name in _FIRST:
        values = record.get(name)
        if isinstance(values, list) and 0 in values[_FIRST[name] :]:
            return _problem(name, values[_FIRST[name] :].count(0))
    return None


def _zeros(column: pa.ChunkedArray, first: int) -> dict[int, int]:
    """How many zeros each list has from position ``first`` on, for lists that have any."""
    ends = np.cumsum(list_lengths(column))
    places = np.flatnonzero(list_values(column).to_numpy(zero_copy_only=False) == 0)
    records = np.searchsorted(ends, places, side="right")
    counted = records[places - (ends - list_lengths(column))[records] >= first]
    numbers, counts = np.unique(counted, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def _problem(name: str, zeros: int) -> str:
    if name == MASK:
        return f"is padded: its {MASK} has {zeros} zeros"
    return f"holds several documents: its {_POSITIONS} restart {zeros} times"
