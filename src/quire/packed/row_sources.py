"""Where the rows of a packed dataset are read: in its shards, or through a plan of documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.errors import CorruptFile, unknown_name
from quire.packed.damage import checked_batches
from quire.plan import Plan

Row: TypeAlias = dict[str, npt.NDArray[Any]]
Lists: TypeAlias = "tuple[npt.NDArray[Any] | _Bits, npt.NDArray[np.int32]]"
STARTS = "document_starts"
SOURCE = ("document_ids", "document_offsets")
_ABOUT_DOCUMENTS = ("document_id", "length")


class RowSource(Protocol):
    """Rows by number."""

    columns: list[str]

    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> Row: ...


class ShardRows:
    """Rows that stand in mapped shards: views, nothing is copied."""

    def __init__(self, tables: Sequence[pa.Table], wanted: Sequence[str] | None) -> None:
        self.columns = chosen_columns(tables[0].column_names, wanted)
        self._batches = list(checked_batches(tables))
        batches = [checked.batch for checked in self._batches]
        self._first_rows = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self._lists = [{name: _lists(batch, name) for name in self.columns} for batch in batches]

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def __getitem__(self, row: int) -> Row:
        batch = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        self._batches[batch].check(self.columns)
        place = row - int(self._first_rows[batch])
        return {
            name: values[offsets[place] : offsets[place + 1]]
            for name, (values, offsets) in self._lists[batch].items()
        }


class PlannedRows:
    """Rows that a plan gathers from mapped documents when they are asked for.

    In memory: where each document starts, for every column; the tokens stay in the files.
    """

    def __init__(
        self,
        tables: Sequence[pa.Table],
        plan: Plan,
        opening: int | None,
        wanted: Sequence[str] | None,
    ) -> None:
        per_token = [n for n in tables[0].column_names if n not in _ABOUT_DOCUMENTS]
        self.columns = chosen_columns([*per_token, STARTS, *SOURCE], wanted)
        self._batches = list(checked_batches(tables))
        batches = [checked.batch for checked in self._batches]
        self._first_documents = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self._tokens = {
            name: _Tokens([_lists(batch, name) for batch in batches])
            for name in self.columns
            if name in per_token
        }
        self._ids = [batch.column("document_id").to_numpy() for batch in batches]
        self._plan = plan
        self._opening = None if opening is None else np.array([opening], dtype=np.int32)

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
                places = (documents - self._first_documents[batches]).tolist()
                found = zip(batches.tolist(), places, strict=True)
                values[name] = np.array([self._ids[batch][place] for batch, place in found])
            elif name == "document_offsets":
                values[name] = starts
            else:
                tokens = self._tokens[name]
                values[name] = tokens.gather(batches, documents, starts, stops, self._opening)
            values[name].flags.writeable = False  # as rows of shards are
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
        opening: npt.NDArray[Any] | None,
    ) -> npt.NDArray[Any]:
        """The fragments end to end; each behind the token that opens it, if there is one."""
        at = self._offsets[documents]
        places = zip(batches.tolist(), (at + starts).tolist(), (at + stops).tolist(), strict=True)
        pieces = [self._values[batch][start:stop] for batch, start, stop in places]
        if opening is not None:
            pieces = [part for piece in pieces for part in (opening, piece)]
        return np.concatenate(pieces)


def chosen_columns(known: list[str], wanted: Sequence[str] | None) -> list[str]:
    """The wanted columns, by default all but the source of fragments."""
    for name in wanted or ():
        if name not in known:
            raise unknown_name("column", name, known)
    return list(wanted) if wanted is not None else [n for n in known if n not in SOURCE]


def _lists(batch: pa.RecordBatch, name: str) -> Lists:
    column = batch.column(name)
    if not isinstance(column, pa.ListArray | pa.LargeListArray) or column.values.null_count:
        raise CorruptFile(
            f"column {name} is {column.type} or holds nulls, where lists of numbers are needed; "
            "the shard was changed: pack it again"
        )
    values = column.values
    flat = _Bits(values) if pa.types.is_boolean(values.type) else values.to_numpy()
    return flat, column.offsets.to_numpy()


class _Bits:
    """Truth values, which Arrow stores eight to a byte: unpacked when a slice is asked for."""

    def __init__(self, values: pa.BooleanArray) -> None:
        self._values = values

    def __getitem__(self, part: slice) -> npt.NDArray[np.bool]:
        unpacked: npt.NDArray[np.bool] = self._values[part].to_numpy(zero_copy_only=False)
        unpacked.flags.writeable = False  # as other columns are
        return unpacked
