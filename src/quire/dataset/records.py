"""Records in one form: columns by name, for datasets, Arrow tables and lists of dicts.

Arrow stays Arrow. Dicts stay Python values until a column is needed as Arrow: a conversation that
went through Arrow would come back with every key that any other conversation has.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.errors import InvalidDocument, InvalidOption, unknown_name
from quire.formats.arrays import as_objects, is_number_list, require_sound, taken, taken_lists
from quire.formats.fields import without_nulls
from quire.formats.record_kinds import example_of

if TYPE_CHECKING:
    import datasets

Records: TypeAlias = "datasets.Dataset | pa.Table | Sequence[Mapping[str, Any]]"
Packed: TypeAlias = "datasets.Dataset | pa.Table"


class Columns(Protocol):
    """Records by column."""

    names: list[str]

    def __len__(self) -> int: ...
    def examples(self) -> Sequence[Mapping[str, Any]]:
        """Records that show the types of the columns."""

    def records(self, names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """All records, with at least these columns, as far as they have them."""

    def column(self, name: str) -> pa.ChunkedArray:
        """All values of a column, as Arrow."""

    def values(self, name: str, first: int = 0, stop: int | None = None) -> list[Any]:
        """Some values of a column, as Python objects; for text that is not UTF-8, the error."""


def as_columns(records: Records) -> Columns:
    """The records by column; a memory-mapped dataset stays where it is."""
    if isinstance(records, pa.Table):
        return ArrowColumns(records)
    if isinstance(records, pa.RecordBatch):
        return ArrowColumns(pa.Table.from_batches([records]))
    if is_hf_dataset(records):
        return _of_dataset(cast("datasets.Dataset", records))
    if isinstance(records, Sequence) and not isinstance(records, str | bytes):
        return DictColumns(records)
    if hasattr(records, "__iter__") and "Iterable" in type(records).__name__:
        raise InvalidOption(
            f"{type(records).__name__} is a stream, which cannot be packed as a whole; use "
            "its map with quire.block_tokenize_fn, or load it as a Dataset"
        )
    raise InvalidOption(
        f"{type(records).__name__} cannot be packed; pass a datasets.Dataset, an Arrow table or a "
        "list of dicts"
    )


def _of_dataset(dataset: datasets.Dataset) -> ArrowColumns:
    """The columns of a dataset, in the order of its indices if it was shuffled or selected from.

    `datasets` itself would slice the table once per row.
    """
    table, indices = dataset.data.table, dataset._indices
    if indices is None:
        return ArrowColumns(table)
    return TakenColumns(table, indices.column(0).to_numpy().astype(np.int64))


def is_hf_dataset(records: object) -> bool:
    """Whether this is a `datasets.Dataset`, by name, so that nothing is imported for it."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(records).__mro__}
    return "datasets.arrow_dataset.Dataset" in names


class ArrowColumns:
    """The columns of an Arrow table."""

    def __init__(self, table: pa.Table) -> None:
        try:
            require_sound(table)
        except pa.ArrowException as error:
            raise InvalidDocument(
                f"the table is damaged: {error}; load or create it again"
            ) from error
        self.names = list(table.column_names)
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def examples(self) -> Sequence[Mapping[str, Any]]:
        """One record, made of the types of the columns."""
        return [example_of(self._table.schema)]

    def records(self, names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """All records, with these columns, without the keys that Arrow adds to messages."""
        values = zip(*(without_nulls(self.values(name)) for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in values]

    def column(self, name: str) -> pa.ChunkedArray:
        """All values of a column."""
        require_name(self, name)
        return self._table[name] if self.names else _no_values()

    def values(self, name: str, first: int = 0, stop: int | None = None) -> list[Any]:
        """Some values of a column, as Python objects; for text that is not UTF-8, the error."""
        return as_objects(self.column(name)[first:stop])


_FEW = 8
"""If fewer than one row in this many is taken, only those rows are copied, not whole chunks."""


class TakenColumns(ArrowColumns):
    """Some rows of an Arrow table, in any order."""

    def __init__(self, table: pa.Table, rows: npt.NDArray[np.int64]) -> None:
        super().__init__(table)
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def column(self, name: str) -> pa.ChunkedArray:
        """All values of a column; lists of numbers stay where they are until they are packed."""
        whole = super().column(name)
        is_few = whole.num_chunks > 1 and _FEW * len(self._rows) < len(whole)
        if is_number_list(whole.type) and not is_few:
            return pa.chunked_array([taken_lists(whole, self._rows)])
        return taken(whole, self._rows)

    def values(self, name: str, first: int = 0, stop: int | None = None) -> list[Any]:
        """Some values of a column, as Python objects; for text that is not UTF-8, the error."""
        return as_objects(taken(super().column(name), self._rows[first:stop]))


class DictColumns:
    """The columns of a list of dicts; a missing key is None."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        for number, record in enumerate(records):
            if not isinstance(record, Mapping):
                raise _not_a_dict(number, record)
        self.names = list(dict.fromkeys(name for record in records for name in record))
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def examples(self) -> Sequence[Mapping[str, Any]]:
        """The records themselves."""
        return self._records

    def records(self, names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """The records themselves."""
        return self._records

    def column(self, name: str) -> pa.ChunkedArray:
        """All values of a column, as Arrow."""
        require_name(self, name)
        if not len(self):
            return _no_values()
        values = self.values(name)
        error = _arrow_error(values)
        if error is None:
            return pa.chunked_array([pa.array(values)])
        # The values up to the first that does not fit are the longest start without an error.
        counts = range(1, len(values) + 1)
        wrong = bisect.bisect_left(counts, True, key=lambda n: _arrow_error(values[:n]) is not None)
        raise InvalidDocument(
            f"record {wrong} has a {name} of type {type(values[wrong]).__name__}, which does not "
            f"fit those before it: {error}; fix it, or leave the column out with columns="
        )

    def values(self, name: str, first: int = 0, stop: int | None = None) -> list[Any]:
        """Some values of a column, as they are."""
        return [record.get(name) for record in self._records[first:stop]]


def _not_a_dict(number: int, record: object) -> InvalidDocument:
    is_text = isinstance(record, str)
    remedy = '; pass texts as [{"text": text} for text in texts]' if is_text else ""
    return InvalidDocument(f"record {number} is {type(record).__name__} but must be a dict{remedy}")


def _no_values() -> pa.ChunkedArray:
    return pa.chunked_array([], pa.list_(pa.int32()))


def _arrow_error(values: list[Any]) -> Exception | None:
    try:
        pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError) as error:
        return error
    return None


def require_name(columns: Columns, name: str) -> None:
    """Raise unless there is such a column; a dataset without records has every column."""
    if name not in columns.names and (columns.names or len(columns)):
        raise unknown_name("column", name, columns.names)
