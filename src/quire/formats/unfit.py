"""Records of tokens that must not be packed: padded ones, and rows that are packed already.

The columns that show it are looked at whether or not they go along.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from quire.errors import InvalidOption
from quire.formats.list_values import is_number_list, list_lengths, list_values

MASK = "attention_mask"
_POSITIONS = "position_ids"
_FIRST = {MASK: 0, _POSITIONS: 1}
"""From which place on a zero is wrong."""
_OF_PACKED_ROWS = ("document_starts", "seq_lengths")
WATCHED = (*_FIRST, *_OF_PACKED_ROWS)


def require_unpacked(names: Collection[str], what: str = "the dataset") -> None:
    """Raise for lists that only packed rows have: their documents would run into each other."""
    for name in _OF_PACKED_ROWS:
        if name in names:
            raise InvalidOption(
                f"{what} is packed already: it has {name!r}, and packing its rows again would let "
                "their documents run into each other; pack the documents themselves"
            )


def unfit_records(table: pa.Table | pa.RecordBatch) -> dict[int, str]:
    """The records that must not be packed, and what to say of each.

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
    """How many zeros a list has from that place on, for lists that have any."""
    ends = np.cumsum(list_lengths(column))
    places = np.flatnonzero(list_values(column).to_numpy(zero_copy_only=False) == 0)
    records = np.searchsorted(ends, places, side="right")
    counted = records[places - (ends - list_lengths(column))[records] >= first]
    numbers, counts = np.unique(counted, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def _problem(name: str, zeros: int) -> str:
    if name == MASK:
        return f"is padded: its {MASK} has {zeros} zeros"
    return f"holds several documents: its {_POSITIONS} begin again {zeros} times"
