"""Which columns are packed: decided once, from the first file, for all partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from quire.corpus.inputs import fields_to_read, of_each
from quire.corpus.options import TEXT_OPTIONS, CorpusOptions
from quire.dataset.recognition import require_texts
from quire.errors import InvalidDocument, InvalidOption, QuireError, unknown_name
from quire.formats.arrays import is_list, is_number_list
from quire.formats.fields import TOOLS, kind_of_values
from quire.formats.files import InputFile
from quire.formats.record_kinds import (
    TOKENS_KIND,
    example_of,
    kinds_of,
    likely_column,
    remedy,
)
from quire.formats.tables import require_text
from quire.formats.token_columns import PER_TOKEN, TOKENS, require_unpacked
from quire.options.names import option

_EMPTY, _INTEGER = "null", "int64"
"""The type of a column without values, and the type that is assumed for it."""


def resolve_columns(files: Sequence[InputFile], options: CorpusOptions) -> dict[str, str]:
    """The per-token columns of tokenized input and the Arrow types of their values.

    All tables must agree on them. Unlike `pack_dataset`, which sees all records, this selects only
    well-known per-token columns by default.
    """
    schemas = _schemas(files, options)
    for file, schema in schemas.items():
        _require_distinct(file, schema)
    require_texts(files, options)
    if not options.pretokenized:
        for file, schema in schemas.items():
            _require_fields(file, schema, options)
        return {}
    first, known = _first_columns(files, schemas, options)
    require_unpacked(known, str(first.path))
    for file, schema in schemas.items():
        require_unpacked(_of_schema(schema), str(file.path))
    names = options.columns or [
        name for name in PER_TOKEN if name in known or _is_list_of(schemas.get(first), name)
    ]
    for name in (TOKENS, *names):
        if name not in known:
            shown = options.tokens_column if name == TOKENS else name
            raise _not_a_list(first, shown, schemas.get(first), name, known)
    columns = {name: known[name] for name in dict.fromkeys((TOKENS, *names))}
    for file, schema in schemas.items():
        _require_same(file, schema, columns, first)
        if not options.columns:
            _require_none_lost(file, _of_schema(schema), columns, first)
    return columns


def shows_tokens(files: Sequence[InputFile], options: CorpusOptions) -> bool:
    """Whether the records contain tokens and no text, although the options do not say so."""
    if options.pretokenized or options.has_answers:
        return False
    if any(file.format.is_plain_text or file.text_column for file in files):
        return False
    defaults = options.with_defaults({})
    asked = replace(options, pretokenized=True, **{name: defaults[name] for name in TEXT_OPTIONS})
    schemas = _schemas(files, asked)
    if any(options.text_column in schema.names for schema in schemas.values()):
        return False
    lines = (record for file in files if file not in schemas for record in _sample(file, asked))
    if any(options.text_column in record for record in lines):
        return False
    file, known = _first_columns(files, schemas, asked)
    return TOKENS in known and (file in schemas or bool(_of_lines(file, asked)))


def _schemas(files: Sequence[InputFile], options: CorpusOptions) -> dict[InputFile, pa.Schema]:
    """The schema of every table, with the tokens under their usual name."""
    read = of_each(files, lambda file: file.format.schema(file))
    return {
        file: _renamed(schema, options)
        for file, schema in zip(files, read, strict=True)
        if schema is not None
    }


def _renamed(schema: pa.Schema, options: CorpusOptions) -> pa.Schema:
    key = options.tokens_column
    if not options.pretokenized or key == TOKENS:
        return schema
    kept = [field for field in schema if field.name != TOKENS]
    return pa.schema([f.with_name(TOKENS) if f.name == key else f for f in kept])


def _first_columns(
    files: Sequence[InputFile], schemas: Mapping[InputFile, pa.Schema], options: CorpusOptions
) -> tuple[InputFile, dict[str, str]]:
    """The first file from which columns can be determined, and its columns.

    A file in which all documents are empty has names but no types; it is used only if no other
    file has more.
    """
    empty: tuple[InputFile, dict[str, str]] | None = None
    for file in files:
        known = _of_schema(schemas[file]) if file in schemas else _of_lines(file, options)
        if known.get(TOKENS) == _EMPTY:
            empty = empty or (file, known)
        elif known or file in schemas:
            return file, known
    file, known = empty or (files[0], dict.fromkeys((TOKENS, *(options.columns or ())), _EMPTY))
    return file, {name: _INTEGER if kind == _EMPTY else kind for name, kind in known.items()}


def _require_distinct(file: InputFile, schema: pa.Schema) -> None:
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise InvalidDocument(
                f"{file.path} has {schema.names.count(name)} columns {name!r}, so the choice is "
                "ambiguous; give each its own name"
            )


def _require_fields(file: InputFile, schema: pa.Schema, options: CorpusOptions) -> None:
    fields = file.own_fields(fields_to_read(options, {}))
    tools = options.tools_column
    for one in [*fields.columns, *([] if tools in (None, TOOLS) else [str(tools)])]:
        if one not in schema.names:
            raise _missing_column(file, one, schema, options)
    if not options.has_answers:
        require_text(file.path, schema, fields.text_column)


def _missing_column(
    file: InputFile, name: str, schema: pa.Schema, options: CorpusOptions
) -> QuireError:
    """The error for a table without a column; names the option for what it has instead."""
    found = next((kind for kind in kinds_of(example_of(schema)) if kind != TOKENS_KIND), None)
    if found is not None and found != options.record_kind:
        return InvalidDocument(f"{file.path} has no column {name!r}; {remedy(found)}")
    if options.tokens_column in schema.names:
        return InvalidOption(
            f"{file.path} has no column {name!r}, but it has {options.tokens_column!r}; to pack "
            f"its tokens, set {option('pretokenized')}"
        )
    found = likely_column(example_of(schema)) if name == options.text_column else ""
    error = unknown_name(f"column of {file.path}", name, schema.names)
    return InvalidOption(f"{error}; {remedy(found)}") if found else error


def _is_list_of(schema: pa.Schema | None, name: str) -> bool:
    return schema is not None and name in schema.names and is_list(schema.field(name).type)


def _of_schema(schema: pa.Schema) -> dict[str, str]:
    """The columns that are lists of numbers, with the types of the numbers."""
    return {
        field.name: str(field.type.value_type) for field in schema if is_number_list(field.type)
    }


def _not_a_list(
    file: InputFile, shown: str, schema: pa.Schema | None, name: str, known: Mapping[str, str]
) -> QuireError:
    """The error for a required column that is missing or not a list of numbers."""
    there = known if schema is None else schema.names
    if schema is None or name not in there:
        return unknown_name(f"column of {file.path}", shown, there)
    kind = schema.field(name).type
    nested = is_list(kind) and is_list(kind.value_type)
    remedy = "remove the outer dimension" if nested else "convert it"
    return InvalidDocument(
        f"{file.path}: column {shown!r} has type {kind} but lists of numbers are needed; {remedy} "
        "before packing"
    )


def _of_lines(file: InputFile, options: CorpusOptions) -> dict[str, str]:
    if file.format.is_plain_text:
        raise InvalidOption(f"{file.path} is text, but the options ask for tokens")
    empty: dict[str, str] = {}
    for record in _sample(file, options):
        lists = {name: value for name, value in record.items() if isinstance(value, list)}
        if lists.get(TOKENS):
            return {name: kind_of_values(value) for name, value in lists.items()}
        empty = empty or dict.fromkeys(lists, _EMPTY)
    return empty if TOKENS in empty else {}


def _sample(file: InputFile, options: CorpusOptions) -> Iterator[Mapping[str, Any]]:
    return file.format.sample(file, fields_to_read(options, {}))


def _require_same(
    file: InputFile, schema: pa.Schema, columns: Mapping[str, str], first: InputFile
) -> None:
    mine = _of_schema(schema)
    for name, kind in columns.items():
        if mine.get(name) not in (kind, _EMPTY):
            other = str(schema.field(name).type) if name in schema.names else "nothing"
            raise InvalidDocument(
                f"{file.path}: column {name!r} holds {mine.get(name, other)} but in "
                f"{first.path} it holds {kind}; give all files one schema, or pack them separately"
            )


def _require_none_lost(
    file: InputFile, mine: Mapping[str, str], columns: Mapping[str, str], first: InputFile
) -> None:
    for name in PER_TOKEN:
        if name in mine and name not in columns:
            raise InvalidDocument(
                f"{file.path} has a column {name!r} but {first.path} has none, so it would be "
                "lost; give all files one schema, or pack them separately"
            )
