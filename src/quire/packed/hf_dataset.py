"""Packed rows as a `datasets.Dataset` whose table is mapped memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from datasets import Dataset, Features
from datasets.table import InMemoryTable

from quire.dataset.rows import with_boundary_columns

if TYPE_CHECKING:
    from quire.packed.dataset import PackedDataset


def hf_dataset(rows: PackedDataset, *, position_ids: bool, seq_lengths: bool) -> Dataset:
    """The rows as a `datasets.Dataset`, with boundaries in the forms that trainers read."""
    fingerprint = f"{rows.fingerprint[:20]}{position_ids:d}{seq_lengths:d}"
    if rows.plan is not None:
        return _gathered(rows, position_ids=position_ids, seq_lengths=seq_lengths)
    table = _MappedTable(_Opener(rows, position_ids, seq_lengths))
    return Dataset(table, fingerprint=fingerprint + "".join(rows.columns)[:40])


@dataclass(frozen=True)
class _Opener:
    """The table of a dataset's shards, opened again in every process."""

    rows: PackedDataset
    position_ids: bool
    seq_lengths: bool

    def __call__(self) -> pa.Table:
        table = self.rows.mapped_table()
        return with_boundary_columns(
            table, position_ids=self.position_ids, seq_lengths=self.seq_lengths
        )


class _MappedTable(InMemoryTable):  # type: ignore[misc]
    """A table that another process maps again, where `datasets` would send a copy of all rows."""

    def __init__(self, opened: Callable[[], pa.Table], table: pa.Table | None = None) -> None:
        super().__init__(opened() if table is None else table)
        self._opened = opened

    def __reduce__(self) -> tuple[type[_MappedTable], tuple[Callable[[], pa.Table]]]:
        return _MappedTable, (self._opened,)

    def after(self, step: _Step) -> _MappedTable:
        """The table after a step, which a receiver repeats."""
        return _MappedTable(partial(step.of, self._opened), step(self.table))


@dataclass(frozen=True)
class _Step:
    """A method of a table and its arguments."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def __call__(self, table: pa.Table) -> pa.Table:
        return getattr(InMemoryTable(table), self.name)(*self.arguments, **self.options).table

    def of(self, opened: Callable[[], pa.Table]) -> pa.Table:
        """The result for a table that is opened first."""
        return self(opened())


def _method(name: str) -> Callable[..., _MappedTable]:
    def method(table: _MappedTable, *arguments: Any, **options: Any) -> _MappedTable:  # noqa: ANN401
        return table.after(_Step(name, arguments, options))

    return method


for _name in ("slice", "select", "drop", "rename_columns", "cast", "replace_schema_metadata"):
    setattr(_MappedTable, _name, _method(_name))


def _gathered(rows: PackedDataset, *, position_ids: bool, seq_lengths: bool) -> Dataset:
    """The rows of a plan, written once to the cache of `datasets`."""
    given: dict[str, Any] = {
        "rows": rows,
        "position_ids": position_ids,
        "seq_lengths": seq_lengths,
    }
    first = next(_plain_rows(**given), None)
    if first is None:
        return Dataset.from_dict({name: [] for name in rows.columns})
    features = Features.from_arrow_schema(pa.Table.from_pylist([first]).schema)
    # The fingerprint is part of the cache's key: another dataset may have the same path.
    whole: Dataset = Dataset.from_generator(
        _plain_rows, features=features, gen_kwargs={**given, "fingerprint": rows.fingerprint}
    )
    return whole


def _plain_rows(
    rows: PackedDataset, *, position_ids: bool, seq_lengths: bool, fingerprint: str = ""
) -> Iterator[dict[str, Any]]:
    for row in rows:
        table = pa.table({name: pa.array([values]) for name, values in row.items()})
        yield from with_boundary_columns(
            table, position_ids=position_ids, seq_lengths=seq_lengths
        ).to_pylist()
