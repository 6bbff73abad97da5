"""The field of a record that is packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from quire.corpus.options import CorpusOptions
from quire.corpus.readers.batches import BadRecord, Batch, Conversation
from quire.formats.json_records import RecordProblem
from quire.formats.list_columns import PER_TOKEN, TOKENS
from quire.formats.unfit import unfit_record
from quire.text.chat import TOOLS


def field_of(record: Mapping[str, Any], options: CorpusOptions, columns: Mapping[str, str]) -> Any:  # noqa: ANN401 - a JSON value
    """The text, the conversation or the token columns of a JSON object, or a `RecordProblem`."""
    if options.pretokenized:
        record = with_tokens(record, options)
        _require_none_lost(record, options, columns)
        _require_fit(record)
        return {name: _numbers(record, name, kind) for name, kind in columns.items()}
    if options.messages_key is not None:
        messages = _required(record, options.messages_key, list)
        return Conversation(messages, _tools(record, options.tools_key))
    return _required(record, options.text_key, str)


def with_tokens(record: Mapping[str, Any], options: CorpusOptions) -> Mapping[str, Any]:
    """The record with its tokens under their usual name; what else has that name is left out."""
    key = options.tokens_key
    if key == TOKENS:
        return record
    if key not in record:
        raise RecordProblem(f"has no {key!r}")
    return {**{n: v for n, v in record.items() if n not in (key, TOKENS)}, TOKENS: record[key]}


def _tools(record: Mapping[str, Any], key: str | None) -> object:
    if key is not None and key != TOOLS and key not in record:
        raise RecordProblem(f"has no {key!r}, where tools, or null for none, are needed")
    return None if key is None else record.get(key)


def _require_none_lost(
    record: Mapping[str, Any], options: CorpusOptions, columns: Mapping[str, str]
) -> None:
    """Columns are those of the first record: masks and labels that come later would be dropped."""
    for name in () if options.columns else PER_TOKEN:
        if name not in columns and record.get(name) not in (None, []):
            raise RecordProblem(f"has {name!r}, which the first record of the input has not")


def _require_fit(record: Mapping[str, Any]) -> None:
    problem = unfit_record(record)
    if problem is not None:
        raise RecordProblem(problem)


def _numbers(record: Mapping[str, Any], name: str, kind: str) -> list[Any]:
    values: list[Any] = _required(record, name, list)
    # Arrow would cut fractions off, and take true for 1.
    types, needed = _NEEDED.get(kind, _INTEGERS)
    for other in set(map(type, values)) - types:
        raise RecordProblem(f"has {_WORDS[other]} under {name!r}, where {needed} are needed")
    return values


def kind_of_values(values: Sequence[object]) -> str:
    """The Arrow type of the numbers in a JSON list; of a list that holds others, of integers.

    >>> kind_of_values([1, 2.5]), kind_of_values([True, False]), kind_of_values([1])
    ('double', 'bool', 'int64')
    """
    types = set(map(type, values)) - {type(None)}
    return "bool" if types == {bool} else "double" if float in types else "int64"


_NULL = type(None)  # is found later, with those of tables
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


def _required(record: Mapping[str, Any], key: str, kind: type) -> Any:  # noqa: ANN401
    if key not in record:
        raise RecordProblem(f"has no {key!r}")
    value = record[key]
    if not isinstance(value, kind):
        given = "null" if value is None else type(value).__name__
        raise RecordProblem(f"has {given} under {key!r}, where {_NAMES[kind]} is needed")
    return value


_NAMES: dict[type, str] = {str: "a string", list: "a list"}


def as_token_table(batch: Batch, columns: Mapping[str, str]) -> Batch:
    """The batch with its token columns as Arrow; records that do not fit become bad ones."""
    values: list[dict[str, list[Any]]] = list(batch.values)
    table = _table(values, columns)
    if table is None:
        alone = [_table([value], columns) is not None for value in values]
        for record, fits in zip(batch.records, alone, strict=True):
            if not fits:
                reason = f"has numbers that are too large under {' or '.join(columns)}"
                batch.bad.append(
                    BadRecord(file=batch.file, record=record, offset=None, reason=reason)
                )
        batch.records = [r for r, fits in zip(batch.records, alone, strict=True) if fits]
        table = _table([v for v, fits in zip(values, alone, strict=True) if fits], columns)
    batch.values = table
    return batch


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
