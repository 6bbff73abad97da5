"""Groups of records: a number for each, from the values of a column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.dataset.records import Columns
from quire.errors import InvalidDocument


def group_numbers(columns: Columns, name: str) -> npt.NDArray[np.int64]:
    """The same number for equal values of the column; a record without a value is alone."""
    column = columns.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        indices = pc.dictionary_encode(column).unify_dictionaries()
    except pa.ArrowNotImplementedError as error:
        raise InvalidDocument(
            f"column {name!r} holds {column.type}, whose values cannot be compared; group by a "
            "column of numbers or text"
        ) from error
    parts = [pc.fill_null(chunk.indices, -1) for chunk in indices.chunks]
    numbers = np.concatenate([np.zeros(0, np.int64), *(part.to_numpy() for part in parts)])
    alone = np.flatnonzero(numbers < 0)
    numbers[alone] = len(numbers) + alone
    return numbers
