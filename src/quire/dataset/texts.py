"""The texts of records, in batches for a tokenizer; what is no text is a bad record."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa

from quire.dataset.records import ArrowColumns, Columns, require_name
from quire.errors import InvalidDocument
from quire.formats.bad_records import BadRecords

_BATCH_BYTES = 1 << 24
"""Text handed to the tokenizer at once: enough for its threads, little beside the tokens."""

_TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_null,
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def text_batches(columns: Columns, text_column: str, bad: BadRecords) -> Iterator[list[str]]:
    """Texts of about so many bytes at a time; a bad record's is empty."""
    require_name(columns, text_column)
    size = max(1, _BATCH_BYTES // _mean_bytes(columns, text_column))
    for first in range(0, len(columns), size):
        values = columns.values(text_column, first, first + size)
        for number, value in enumerate(values):
            if problem := _problem(value, text_column):
                bad.add(first + number, problem)
                values[number] = ""
        yield values


def _mean_bytes(columns: Columns, text_column: str) -> int:
    if isinstance(columns, ArrowColumns):
        column = columns.column(text_column)
        if columns.names and not any(is_text(column.type) for is_text in _TEXT_TYPES):
            raise InvalidDocument(
                f"column {text_column!r} holds {column.type} but text is needed; name the column "
                "of the text with text_column="
            )
        total = int(column.nbytes)
    else:
        total = sum(len(value) for value in columns.values(text_column) if isinstance(value, str))
    return max(1, total // max(1, len(columns)))


def _problem(value: object, text_column: str) -> str | None:
    if isinstance(value, str):
        lone = None if value.isascii() else _LONE_SURROGATE.search(value)
        return (
            lone and f"has half a surrogate pair at character {lone.start()} of its {text_column}"
        )
    if value is None:
        return f"has no {text_column}"
    if isinstance(value, UnicodeDecodeError):
        return f"has a {text_column} that is not UTF-8"
    return f"has a {text_column} of type {type(value).__name__}, which is no text"
