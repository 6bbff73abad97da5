"""Where the rows of a packed dataset are read: in its shards, or through a plan of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.errors import unknown_name
from quire.plan import Plan

Row: TypeAlias = dict[str, npt.NDArray[Any]]
Lists: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[np.int32]]
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
        self.columns = _columns(tables[0].column_names, wanted)
        batches = list(_batches(tables))
        self._first_rows = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self._lists = [{name: _lists(batch, name) for name in self.columns} for batch in batches]

    def __len__(self) -> int:
        return int(self._first_rows[-1])

    def __getitem__(self, row: int) -> Row:
        batch = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        place = row - int(self._first_rows[batch])
        return {
            name: values[offsets[place] : offsets[place + 1]]
            for name, (values, offsets) in self._lists[batch].items()
        }


class PlannedRows:
    """Rows that a plan gathers from mapped documents when they are asked for."""

    def __init__(
        self,
        tables: Sequence[pa.Table],
        plan: Plan,
        opening: int | None,
        wanted: Sequence[str] | None,
    ) -> None:
        names = [n for n in tables[0].column_names if n not in _ABOUT_DOCUMENTS]
        self.columns = _columns([*names, STARTS, *SOURCE], wanted)
        batches = list(_batches(tables))
        self._first_documents = np.cumsum([0, *(batch.num_rows for batch in batches)])
        wanted_lists = [name for name in self.columns if name in names]
        self._lists = [{name: _lists(batch, name) for name in wanted_lists} for batch in batches]
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
        places = documents - self._first_documents[batches]
        found = list(zip(batches.tolist(), places.tolist(), strict=True))
        values = {}
        for name in self.columns:
            if name == STARTS:
                sizes = stops - starts + plan.options.prefix
                values[name] = (np.cumsum(sizes) - sizes).astype(np.int32)
            elif name == "document_ids":
                values[name] = np.array([self._ids[batch][place] for batch, place in found])
            elif name == "document_offsets":
                values[name] = starts
            else:
                values[name] = self._gathered(name, found, starts.tolist(), stops.tolist())
            values[name].flags.writeable = False  # as rows of shards are
        return values

    def _gathered(
        self, name: str, found: list[tuple[int, int]], starts: list[int], stops: list[int]
    ) -> npt.NDArray[Any]:
        """The fragments end to end; each behind the token that opens it, if there is one."""
        pieces = []
        for (batch, place), start, stop in zip(found, starts, stops, strict=True):
            values, offsets = self._lists[batch][name]
            at = int(offsets[place])
            if self._opening is not None:
                pieces.append(self._opening)
            pieces.append(values[at + start : at + stop])
        return np.concatenate(pieces)


def _batches(tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    return (batch for table in tables for batch in table.to_batches() if batch.num_rows)


def _columns(known: list[str], wanted: Sequence[str] | None) -> list[str]:
    for name in wanted or ():
        if name not in known:
            raise unknown_name("column", name, known)
    return list(wanted) if wanted is not None else [n for n in known if n not in SOURCE]


def _lists(batch: pa.RecordBatch, name: str) -> Lists:
    column = batch.column(name)
    return column.values.to_numpy(), column.offsets.to_numpy()
