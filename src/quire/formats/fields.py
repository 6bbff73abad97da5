"""The fields of a record that are packed: a text, a conversation, or tokens and their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from quire.formats.token_columns import PER_TOKEN, TOKENS, unfit_record

TOOLS = "tools"
"""The column that holds the tools of a conversation, unless another is named."""


class RecordProblem(ValueError):
    """Why a record is bad; completes "record 7 ..." and repeats nothing of its content."""


class Conversation(NamedTuple):
    """Messages, and the tools that they may call, as the record has them."""

    messages: list[Any]
    tools: object = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fields:
    """Which fields of a record are read, and how much is read at once."""

    text_column: str = "text"
    messages_column: str | None = None
    """Read conversations from this column instead of text."""
    tools_column: str | None = TOOLS
    tokens_column: str = TOKENS
    token_columns: Mapping[str, str] = field(default_factory=dict)
    """Read tokens: ``input_ids`` and its parallel columns, with the Arrow types of their values."""
    allow_other_columns: bool = False
    """Accept records with per-token columns that are not among ``token_columns``."""
    max_record_bytes: int = 1 << 28
    """A longer record is a bad record, so that hostile files cannot fill the memory."""
    batch_bytes: int = 1 << 20
    """Text in a batch."""

    def of(self, record: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a JSON value
        """What is packed of a JSON object; raises `RecordProblem`."""
        if self.token_columns:
            return self._tokens(record)
        if self.messages_column is not None:
            messages = _required(record, self.messages_column, list)
            return Conversation(messages, self._tools(record))
        return _required(record, self.text_column, str)

    def with_tokens(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """The record with its tokens under ``input_ids``; any other field of that name goes."""
        name = self.tokens_column
        if name == TOKENS:
            return record
        if name not in record:
            raise RecordProblem(f"has no {name!r}")
        others = {key: value for key, value in record.items() if key not in (name, TOKENS)}
        return {**others, TOKENS: record[name]}

    def _tokens(self, record: Mapping[str, Any]) -> dict[str, list[Any]]:
        record = self.with_tokens(record)
        # Columns are those of the first record: masks and labels that appear later would be lost.
        for name in () if self.allow_other_columns else PER_TOKEN:
            if name not in self.token_columns and record.get(name) not in (None, []):
                raise RecordProblem(f"has {name!r}, which the first record of the input has not")
        problem = unfit_record(record)
        if problem is not None:
            raise RecordProblem(problem)
        return {name: _numbers(record, name, kind) for name, kind in self.token_columns.items()}

    def _tools(self, record: Mapping[str, Any]) -> object:
        name = self.tools_column
        if name is not None and name != TOOLS and name not in record:
            raise RecordProblem(f"has no {name!r}, where tools, or null for none, are needed")
        return None if name is None else record.get(name)


def without_nulls(value: Any) -> Any:  # noqa: ANN401
    """Messages or tools that Arrow returned, without the keys that it added.

    All structs of a column have the same keys, so a tool call comes back with the arguments of
    every other tool, as nulls, and the template would write them out.

    >>> without_nulls([{"name": "add", "arguments": {"a": 2, "x": None}}])
    [{'name': 'add', 'arguments': {'a': 2}}]
    """
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


_NAMES: dict[type, str] = {str: "a string", list: "a list"}


def _required(record: Mapping[str, Any], key: str, kind: type) -> Any:  # noqa: ANN401
    if key not in record:
        known = ", ".join(sorted(map(repr, record)))[:200]
        raise RecordProblem(f"has no {key!r} (it has {known or 'no field'})")
    value = record[key]
    if not isinstance(value, kind):
        given = "null" if value is None else type(value).__name__
        raise RecordProblem(f"has {given} under {key!r}, where {_NAMES[kind]} is needed")
    return value


_NULL = type(None)  # nulls inside lists are found later, together with those of tables
_INTEGERS: tuple[set[type], str] = ({int, _NULL}, "integers")
_NUMBERS: tuple[set[type], str] = ({int, float, _NULL}, "numbers")
_NEEDED: dict[str, tuple[set[type], str]] = {
    "bool": ({bool, _NULL}, "true and false"),
    **dict.fromkeys(("halffloat", "float", "double"), _NUMBERS),
}
_WORDS: dict[type, str] = {
    bool: "true or false",
    float: "numbers with a point",
    int: "numbers",
    str: "strings",
    list: "lists",
    dict: "objects",
}


def _numbers(record: Mapping[str, Any], name: str, kind: str) -> list[Any]:
    values: list[Any] = _required(record, name, list)
    # Arrow would cut fractions off, and convert true to 1.
    types, needed = _NEEDED.get(kind, _INTEGERS)
    for other in set(map(type, values)) - types:
        raise RecordProblem(f"has {_WORDS[other]} under {name!r}, where {needed} are needed")
    return values


def kind_of_values(values: Sequence[object]) -> str:
    """The Arrow type of the numbers in a JSON list; int64 for a list of anything else.

    >>> kind_of_values([1, 2.5]), kind_of_values([True, False]), kind_of_values([1])
    ('double', 'bool', 'int64')
    """
    types = set(map(type, values)) - {type(None)}
    return "bool" if types == {bool} else "double" if float in types else "int64"


def as_token_table(
    values: Sequence[Mapping[str, list[Any]]], columns: Mapping[str, str]
) -> tuple[pa.Table, list[bool]]:
    """The token columns of those records that fit their types, and which records these are."""
    table = _table(values, columns)
    if table is not None:
        return table, [True] * len(values)
    fits = [_table([value], columns) is not None for value in values]
    return _table([v for v, one in zip(values, fits, strict=True) if one], columns), fits


def _table(
    values: Sequence[Mapping[str, list[Any]]], columns: Mapping[str, str]
) -> pa.Table | None:
    try:
        return pa.table(
            {
                name: pa.array([v[name] for v in values], pa.list_(pa.type_for_alias(kind)))
                for name, kind in columns.items()
            }
        )
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None
