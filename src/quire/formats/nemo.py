"""NeMo's packed parquet: each record is a row of sequences, which are the documents.

The columns are ``input_ids``, ``loss_mask`` and ``seq_start_id``, where each sequence of the row
starts. Files are written to the cache as Arrow once, then mapped.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from quire.errors import CorruptFile, InvalidDocument
from quire.formats.arrays import is_number_list
from quire.formats.token_arrow import open_arrow
from quire.formats.token_files import Column, Ints, TokenFile
from quire.formats.token_parquet import as_arrow, schema_of
from quire.storage import AnyPath

OPTIONS: Mapping[str, tuple[str, ...]] = {}
_COLUMNS = ("input_ids", "loss_mask", "seq_start_id")


def recognizes(path: AnyPath) -> bool:
    """Whether this parquet file has the columns of packed rows."""
    if path.suffix != ".parquet" or not path.is_file():
        return False
    try:
        return set(_COLUMNS) <= set(schema_of(path).names)
    except CorruptFile:
        return False


def main_file(path: AnyPath) -> AnyPath | None:
    """The file of a path."""
    return path if path.suffix == ".parquet" and path.is_file() else None


def open_files(
    path: AnyPath, options: Mapping[str, str], known: Mapping[str, Ints]
) -> list[TokenFile]:
    """The sequences of every row of a file."""
    del options, known
    schema = schema_of(path)
    for name in _COLUMNS:
        if name not in schema.names or not is_number_list(schema.field(name).type):
            raise InvalidDocument(f"{path} has no lists of numbers under {name!r}, as NeMo has")
    held_in = as_arrow(path, _COLUMNS)
    rows = open_arrow(path, {}, held_in=held_in)
    with pa.memory_map(str(held_in)) as source:
        lists = pa.ipc.open_file(source).read_all()["seq_start_id"].combine_chunks()
    if (
        lists.null_count
        or lists.values.null_count
        or not pa.types.is_integer(lists.type.value_type)
    ):
        raise CorruptFile(f"{path}: seq_start_id has nulls or is not integers; write it again")
    starts = lists.values.to_numpy().astype(np.int64)
    counts = np.diff(lists.offsets.to_numpy().astype(np.int64))
    of_row = np.repeat(np.arange(len(rows)), counts)
    stops = _stops(path, starts, counts, rows.lengths, of_row)
    columns = {
        name: Column(
            column.data, column.dtype, column.pointers[of_row] + starts * column.dtype.itemsize
        )
        for name, column in rows.columns.items()
    }
    return [TokenFile(path=path, lengths=stops - starts, columns=columns)]


def _stops(path: AnyPath, starts: Ints, counts: Ints, lengths: Ints, of_row: Ints) -> Ints:
    """Where each sequence ends in its row; raises unless they cover it."""
    ends = np.cumsum(counts)
    firsts = ends - counts
    stops = np.append(starts[1:], 0)[: len(starts)]
    empty = (counts == 0) & (lengths > 0)
    stops[ends[counts > 0] - 1] = lengths[counts > 0]
    opens = np.zeros(len(counts), bool)
    opens[counts > 0] = starts[firsts[counts > 0]] != 0
    wrong = empty | opens
    wrong[of_row[(stops < starts) | (starts < 0)]] = True
    if wrong.any():
        row = int(np.argmax(wrong))
        raise CorruptFile(
            f"{path}: seq_start_id of row {row} does not rise from 0 inside its {lengths[row]} "
            "tokens; write it again"
        )
    return stops
