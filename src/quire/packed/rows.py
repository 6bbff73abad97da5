"""Rows of a packed dataset by number: from its shards, or gathered from documents by a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.errors import CorruptFile, unknown_name
from quire.packed.mapped import MappedShard, ShardCache
from quire.plan import Plan

Row: TypeAlias = dict[str, npt.NDArray[Any]]
"""Arrays by column; the images of samples are a list of dicts."""
Lists: TypeAlias = "tuple[npt.NDArray[Any] | _Bits | _Records, npt.NDArray[np.int32]]"
STARTS = "document_starts"
SOURCE = ("document_ids", "document_offsets")
_NOT_PER_TOKEN = ("document_id", "length")


class RowSource(Protocol):
    """Rows by number."""

    columns: list[str]

    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> Row: ...


class ShardRows:
    """Rows of mapped shards, as views without a copy."""

    def __init__(self, shards: Sequence[MappedShard], wanted: Sequence[str] | None) -> None:
        self.columns = chosen_columns(shards[0].columns, wanted)
        self._batches = [batch for shard in shards for batch in shard.batches]
        batches = [checked.batch for checked in self._batches]
        self._first_rows = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self._lists = [{name: _lists(batch, name) for name in self.columns} for batch in batches]

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def __getitem__(self, row: int) -> Row:
        batch = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        self._batches[batch].check(self.columns)
        at = row - int(self._first_rows[batch])
        return {
            name: values[offsets[at] : offsets[at + 1]]  # type: ignore[misc] # images are a list
            for name, (values, offsets) in self._lists[batch].items()
        }


class RemoteRows:
    """Rows of shards in a store; the manifest says how many rows each shard has."""

    def __init__(
        self,
        shards: ShardCache,
        counts: Sequence[int],
        names: list[str],
        wanted: Sequence[str] | None,
    ) -> None:
        self.columns = chosen_columns(names, wanted)
        self._shards, self._names = shards, names
        self._first_rows = np.cumsum([0, *counts])
        self._opened: dict[int, ShardRows] = {}

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def __getitem__(self, row: int) -> Row:
        shard = self.shard_of(row)
        at = row - int(self._first_rows[shard])
        try:
            return self._rows_of(shard)[at]
        except CorruptFile:  # damaged on this disk, so download it again
            self._opened.pop(shard, None)
            self._shards.forget(shard)
            return self._rows_of(shard)[at]

    def shard_of(self, row: int) -> int:
        """The number of the shard that holds a row."""
        return int(np.searchsorted(self._first_rows, row, side="right")) - 1

    def _rows_of(self, number: int) -> ShardRows:
        if number not in self._opened:
            shard = self._shards.open(number)
            count = int(self._first_rows[number + 1] - self._first_rows[number])
            if shard.num_rows != count or shard.columns != self._names:
                raise CorruptFile(
                    f"shard {number} has {shard.num_rows} rows of {', '.join(shard.columns)}, but "
                    f"the manifest says {count} of {', '.join(self._names)}; pack it again"
                )
            self._opened[number] = ShardRows([shard], self.columns)
        return self._opened[number]


class PlannedRows:
    """Rows that a plan gathers from mapped documents when they are read.

    Memory: the start of every document, for every column; tokens stay in the files.
    """

    def __init__(
        self,
        shards: Sequence[MappedShard],
        plan: Plan,
        prefix_token: int | None,
        wanted: Sequence[str] | None,
    ) -> None:
        per_token = [n for n in shards[0].columns if n not in _NOT_PER_TOKEN]
        self.columns = chosen_columns([*per_token, STARTS, *SOURCE], wanted)
        self._batches = [batch for shard in shards for batch in shard.batches]
        batches = [checked.batch for checked in self._batches]
        self._first_documents = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self._tokens = {
            name: _Tokens([_lists(batch, name) for batch in batches])
            for name in self.columns
            if name in per_token
        }
        self._ids = [batch.column("document_id").to_numpy() for batch in batches]
        self._plan = plan
        self._prefix = None if prefix_token is None else np.array([prefix_token], dtype=np.int32)

    def __len__(self) -> int:
        return self._plan.num_rows

    def __getitem__(self, row: int) -> Row:
        plan = self._plan
        part = slice(plan.row_offsets[row], plan.row_offsets[row + 1])
        documents = plan.documents[part]
        starts, stops = plan.starts[part].astype(np.int64), plan.stops[part].astype(np.int64)
        batches = np.searchsorted(self._first_documents, documents, side="right") - 1
        for batch in set(batches.tolist()):
            self._batches[batch].check([*self._tokens, "document_id"])
        values: Row = {}
        for name in self.columns:
            if name == STARTS:
                sizes = stops - starts + plan.options.prefix
                values[name] = (np.cumsum(sizes) - sizes).astype(np.int32)
            elif name == "document_ids":
                positions = (documents - self._first_documents[batches]).tolist()
                found = zip(batches.tolist(), positions, strict=True)
                values[name] = np.array([self._ids[batch][at] for batch, at in found])
            elif name == "document_offsets":
                values[name] = starts
            else:
                tokens = self._tokens[name]
                values[name] = tokens.gather(batches, documents, starts, stops, self._prefix)
            values[name].flags.writeable = False  # like rows of shards
        return values


class _Tokens:
    """One per-token column of all documents: mapped values, and where each document starts."""

    def __init__(self, lists: Sequence[Lists]) -> None:
        self._values = [values for values, _ in lists]
        none = np.zeros(0, dtype=np.int64)
        self._offsets = np.concatenate([none, *(offsets[:-1] for _, offsets in lists)])

    def gather(
        self,
        batches: npt.NDArray[np.integer],
        documents: npt.NDArray[np.integer],
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        prefix: npt.NDArray[Any] | None,
    ) -> npt.NDArray[Any]:
        """The fragments end to end, each after the prefix token if there is one."""
        at = self._offsets[documents]
        ranges = zip(batches.tolist(), (at + starts).tolist(), (at + stops).tolist(), strict=True)
        pieces = [self._values[batch][start:stop] for batch, start, stop in ranges]
        if prefix is not None:
            pieces = [part for piece in pieces for part in (prefix, piece)]
        return np.concatenate(pieces)


def chosen_columns(known: list[str], wanted: Sequence[str] | None) -> list[str]:
    """The wanted columns; by default all except the sources of fragments."""
    for name in wanted or ():
        if name not in known:
            raise unknown_name("column", name, known)
    return list(wanted) if wanted is not None else [n for n in known if n not in SOURCE]


def _lists(batch: pa.RecordBatch, name: str) -> Lists:
    column = batch.column(name)
    if isinstance(column, pa.ListArray) and pa.types.is_struct(column.type.value_type):
        return _Records(column.values), column.offsets.to_numpy()
    if not isinstance(column, pa.ListArray | pa.LargeListArray) or column.values.null_count:
        raise CorruptFile(
            f"column {name} is {column.type} or holds nulls, where lists of numbers are needed; "
            "the shard was changed: pack it again"
        )
    values = column.values
    if pa.types.is_fixed_size_list(values.type):  # grids: [n, 3]
        width = values.type.list_size
        return values.flatten().to_numpy().reshape(-1, width), column.offsets.to_numpy()
    flat = _Bits(values) if pa.types.is_boolean(values.type) else values.to_numpy()
    return flat, column.offsets.to_numpy()


class _Records:
    """Structs, such as images; a slice is read when it is asked for."""

    def __init__(self, values: pa.StructArray) -> None:
        self._values = values

    def __getitem__(self, part: slice) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._values[part].to_pylist()
        return found


class _Bits:
    """Booleans, which Arrow stores eight to a byte; a slice is unpacked when it is read."""

    def __init__(self, values: pa.BooleanArray) -> None:
        self._values = values

    def __getitem__(self, part: slice) -> npt.NDArray[np.bool]:
        unpacked: npt.NDArray[np.bool] = self._values[part].to_numpy(zero_copy_only=False)
        unpacked.flags.writeable = False  # like other columns
        return unpacked
