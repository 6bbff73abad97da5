"""The fields of a record that are packed: a text, a conversation, or tokens and their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from quire.formats.record_kinds import (
    CONVERSATIONS,
    KINDS,
    TEXT,
    VISION,
    WITH_IMAGES,
    RecordProblem,
    kinds_of,
    likely_column,
    required,
)
from quire.formats.token_columns import PER_TOKEN, TOKENS, unfit_record

TOOLS = "tools"
"""The column that holds the tools of a conversation, unless another is named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fields:
    """Which fields of a record are read, and how much is read at once."""

    kind: str = "text"
    """What a record holds, by its name in `record_kinds.KINDS`."""
    is_chat: bool = False
    """Whether questions and answers are rendered by a chat template."""
    text_column: str = "text"
    messages_column: str | None = None
    """The column of conversations."""
    tools_column: str | None = TOOLS
    tokens_column: str = TOKENS
    images_column: str = "images"
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
        read = KINDS[self.kind].read
        try:
            if read is None:
                return required(record, self.text_column, str)
            return read(record, self)
        except RecordProblem as problem:
            problem.fits = problem.fits or self._better(record)
            raise

    def _better(self, record: Mapping[str, Any]) -> str | None:
        """The kind that a bad record fits, or a column of another name than is read."""
        seen = {**record, "text": record.get(self.text_column)}
        found = next(iter(kinds_of(seen)), None)
        if found is None and self.kind == TEXT and self.text_column not in record:
            return likely_column(record) or None
        return None if found == self.kind else found

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

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of text, messages or images that are packed."""
        images = (self.images_column,) if self.kind in WITH_IMAGES else ()
        if self.kind == VISION:
            return (self.tokens_column, *images)
        if self.kind in CONVERSATIONS and self.messages_column is not None:
            return (self.messages_column, *images)
        return KINDS[self.kind].columns or (self.text_column,)

    @property
    def needs_tools(self) -> bool:
        """Whether every record must have the column of tools; one of the default name need not."""
        return self.is_chat and self.tools_column not in (None, TOOLS)

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Columns that are read where a file has them."""
        tools = (self.tools_column,) if self.is_chat and self.tools_column is not None else ()
        return (*KINDS[self.kind].optional, *tools)

    def tools_of(self, record: Mapping[str, Any]) -> object:
        """The tools that a record's messages may call."""
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
    values: list[Any] = required(record, name, list)
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
