"""Which kind of records an input holds: recognized from the first ones, and said in one line."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from quire.errors import InvalidOption
from quire.formats.fields import Fields
from quire.formats.files import InputFile
from quire.formats.record_kinds import (
    CONVERSATIONS,
    KINDS,
    SEEN,
    TEXT,
    TOKENS_KIND,
    Record,
    example_of,
    is_chat_record,
    is_conversation,
    kinds_of,
)
from quire.options import RecordOptions, SourceOptions
from quire.options.names import setting
from quire.text import TokenizerLike
from quire.text.chat.template import has_chat_template

_LOG = logging.getLogger("quire")


def recognized(options: RecordOptions, records: Iterable[Record]) -> dict[str, Any]:
    """The options that the records decide: their kind, if it is open and any is recognized."""
    if options.record_kind is not None:
        return {}
    for record in islice(records, SEEN):
        found = _kinds(options, record)
        if found and found[0] != TOKENS_KIND:
            _say(found)
            column = _column_of_messages(options, record) if found[0] in CONVERSATIONS else None
            return {"record_kind": found[0], "messages_column": column}
    return {} if options.messages_column is None else {"record_kind": "messages"}


def first_records(files: Sequence[InputFile], fields: Fields) -> Iterator[Record]:
    """Records that show what the files hold: of a table, one made of its columns."""
    for file in files:
        if file.format.is_plain_text or file.text_column is not None:
            yield {fields.text_column: ""}
            continue
        schema = file.format.schema(file)
        yield from file.format.sample(file, fields) if schema is None else [example_of(schema)]


def require_texts(files: Sequence[InputFile], options: RecordOptions) -> None:
    """Raise if a file names a column of text, but the records hold something else."""
    for file in files:
        if file.text_column is not None and options.record_kind not in (None, TEXT):
            raise InvalidOption(
                f"{file.path} is read by its column of text {file.text_column!r}, but the records "
                f"hold {KINDS[options.record_kind].holds} "
                f"({setting('record_kind', options.record_kind)}); leave the column out, or read "
                "such inputs separately"
            )


def is_chat(
    options: RecordOptions, records: Iterable[Record], tokenizer: TokenizerLike | None
) -> bool:
    """Whether a chat template renders the records: messages do, and instructions if there is one.

    Of prompts and answers, the first record that has them decides.
    """
    kind = options.record_kind
    if kind in (None, TEXT, TOKENS_KIND):
        return False
    if kind == "instruction":
        return has_chat_template(tokenizer)
    seen = (one for one in islice(records, SEEN) if KINDS[kind].fits(one))
    return kind in CONVERSATIONS or any(is_chat_record(kind, one) for one in islice(seen, 1))


def _kinds(options: RecordOptions, record: Record) -> list[str]:
    """The kinds that a record fits, given the columns that the options name."""
    column = options.messages_column
    if column is not None:
        value = record.get(column)
        by_key = {"role": "messages", "from": "sharegpt"}
        return [kind for key, kind in by_key.items() if is_conversation(value, key)][:1]
    named = {"text": options.text_column}
    if isinstance(options, SourceOptions):
        named["input_ids"] = options.tokens_column
    return kinds_of({**record, **{name: record.get(key) for name, key in named.items()}})


def _column_of_messages(options: RecordOptions, record: Record) -> str | None:
    if options.messages_column is not None:
        return options.messages_column
    return next((name for name in ("messages", "conversations") if record.get(name)), None)


def _say(kinds: list[str]) -> None:
    """Say what was recognized, unless it is text and could be nothing else."""
    kind, *others = kinds
    if kind == TEXT and not others:
        return
    shown = ", ".join(f"{KINDS[name].holds} ({setting('record_kind', name)})" for name in others)
    also = f"; they also fit {shown}" if shown else ""
    kept = f"{KINDS[kind].holds} ({setting('record_kind', kind)})"
    _LOG.info("recognized from the first records: %s%s", kept, also)
