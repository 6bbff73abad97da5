"""The documents of a dataset: from tokens, from texts or from conversations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.dataset.options import DatasetOptions
from quire.dataset.records import ArrowColumns, Columns, require_name
from quire.documents import Documents
from quire.errors import InvalidDocument, InvalidOption
from quire.formats.arrays import is_text
from quire.formats.bad_records import BadRecords
from quire.formats.fields import TOOLS, without_nulls
from quire.formats.token_columns import TOKENS, WATCHED, documents_from_columns
from quire.ledger import Ledger, Tally, TokenTally
from quire.progress import progress_bar
from quire.text import as_tokenizer
from quire.text.chat import conversation_encoder, encode_conversations
from quire.text.chat.template import as_chat_tokenizer
from quire.text.encode import encode_contents, with_specials
from quire.text.encoded import Encoded
from quire.text.engine import open_chat_engine, open_tokenizer
from quire.text.fast_tokenizer import TokenizerMismatch

_BATCH_BYTES = 1 << 24
"""Text passed to the tokenizer at once: enough for its threads, little compared to the tokens."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Item = TypeVar("Item")


def documents_of(columns: Columns, options: DatasetOptions) -> Documents:
    """The documents of all records."""
    if options.messages_column is not None:
        options.require_unset("tokens", "columns")
        options.require_unset("text", "truncate_at", "truncate_to")
        documents = _from_conversations(columns, options)
    elif _are_tokenized(columns, options):
        options.require_unset("text", "truncate_at", "truncate_to")
        documents = _from_tokens(columns, options)
    else:
        options.require_unset("tokens", "columns")
        return _from_texts(columns, options)
    if options.drop_longer_than is None:
        return documents
    return without(documents, documents.lengths > options.drop_longer_than, "too_long")


def without(documents: Documents, which: npt.NDArray[np.bool], reason: str) -> Documents:
    """All but these documents, which are counted as dropped for this reason."""
    if not which.any():
        return documents
    count, tokens = int(which.sum()), int(documents.lengths[which].sum())
    dropped = Ledger(
        documents=Tally(input=count, dropped={reason: count}),
        tokens=TokenTally(input=tokens, dropped={reason: tokens}),
    )
    return replace(
        documents,
        offsets=documents.offsets[~which],
        lengths=documents.lengths[~which],
        numbers=documents.numbers[~which],
        ledger=documents.ledger + dropped,
    )


def _are_tokenized(columns: Columns, options: DatasetOptions) -> bool:
    """Whether tokens are taken as they are; an ambiguous dataset is an error."""
    name = options.tokens_column
    tokens, text = name in columns.names, options.text_column in columns.names
    if options.tokenizer is None and not tokens and columns.names:
        raise InvalidOption(
            f"the dataset has no {name!r} column (it has {', '.join(columns.names)}); pass a "
            "tokenizer to pack its text"
        )
    if options.pretokenized or options.tokenizer is None:
        return True
    if tokens and text:
        raise InvalidOption(
            f"the dataset has both {name!r} and {options.text_column!r}, and a tokenizer is given; "
            "leave the tokenizer out or say pretokenized=True to pack the tokens, or remove that "
            "column to pack the text"
        )
    return tokens


def _from_tokens(columns: Columns, options: DatasetOptions) -> Documents:
    name = options.tokens_column
    wanted = columns.names if options.columns is None else [name, *options.columns]
    wanted = [*wanted, *(name for name in WATCHED if name in columns.names and name not in wanted)]
    known = as_tokenizer(options.tokenizer).vocab_size if options.tokenizer is not None else None
    return documents_from_columns(
        _with_tokens_named(columns, wanted or [name], name),
        options.columns,
        bad=BadRecords(len(columns), options.max_bad_records),
        vocab_size=known,
    )


def _with_tokens_named(columns: Columns, wanted: Sequence[str], tokens: str) -> pa.Table:
    """The columns, with the tokens under their usual name."""
    others = [name for name in wanted if name not in (tokens, TOKENS)]
    return pa.table({TOKENS: columns.column(tokens), **{n: columns.column(n) for n in others}})


def _from_texts(columns: Columns, options: DatasetOptions) -> Documents:
    num_records = len(columns)
    require_name(columns, options.text_column)
    num_bytes = _mean_bytes(columns, options.text_column) * num_records
    tokenizer = open_tokenizer(options.tokenizer, options.tokenizer_engine, num_bytes)
    bad = BadRecords(num_records, options.max_bad_records)
    parts = []
    with progress_bar("tokenizing", num_records, show=options.progress) as advance:
        first = 0
        for texts in _text_batches(columns, options.text_column, bad):
            try:
                parts.append(encode_contents(texts, tokenizer, options))
            except TokenizerMismatch as error:  # it counts from the start of the batch
                record = first + error.document
                raise TokenizerMismatch(f"record {record}: {error}", record) from error
            advance(len(texts))
            first += len(texts)
    return with_specials(Encoded.joined(parts), tokenizer, options, bad)


def _text_batches(columns: Columns, name: str, bad: BadRecords) -> Iterator[list[str]]:
    """Texts, about `_BATCH_BYTES` at a time; a bad record's text is empty."""
    size = max(1, _BATCH_BYTES // _mean_bytes(columns, name))
    for first in range(0, len(columns), size):
        values = columns.values(name, first, first + size)
        for number, value in enumerate(values):
            if problem := _text_problem(value, name):
                bad.add(first + number, problem)
                values[number] = ""
        yield values


def _mean_bytes(columns: Columns, name: str) -> int:
    if isinstance(columns, ArrowColumns):
        column = columns.column(name)
        if columns.names and not is_text(column.type):
            raise InvalidDocument(
                f"column {name!r} holds {column.type} but text is needed; name the column of the "
                "text with text_column="
            )
        total = int(column.nbytes)
    else:
        total = sum(len(value) for value in columns.values(name) if isinstance(value, str))
    return max(1, total // max(1, len(columns)))


def _text_problem(value: object, name: str) -> str | None:
    if isinstance(value, str):
        lone = None if value.isascii() else _LONE_SURROGATE.search(value)
        return lone and f"has half a surrogate pair at character {lone.start()} of its {name}"
    if value is None:
        return f"has no {name}"
    if isinstance(value, UnicodeDecodeError):
        return f"has a {name} that is not UTF-8"
    return f"has a {name} of type {type(value).__name__}, which is not text"


def _from_conversations(columns: Columns, options: DatasetOptions) -> Documents:
    """One document per conversation, with labels on the assistant's turns."""
    if options.tokenizer is None:
        raise InvalidOption("messages need a tokenizer with a chat template; pass tokenizer=")
    tokenizer = as_chat_tokenizer(options.tokenizer)
    conversations = _objects(columns, str(options.messages_column))
    engine = open_chat_engine(tokenizer, options.tokenizer_engine, _num_characters(conversations))
    encoder = conversation_encoder(tokenizer, options.assistant_only, options.chat_date, engine)
    tools = _tools(columns, options.tools_column)
    bad = BadRecords(len(conversations), options.max_bad_records)
    with progress_bar("rendering", len(conversations), show=options.progress) as advance:
        pairs = _advancing(zip(conversations, tools, strict=True), advance)
        try:
            return encode_conversations(pairs, encoder, bad)
        except TokenizerMismatch as error:
            record = error.document
            raise TokenizerMismatch(f"record {record}: {error}", record) from error


def _num_characters(conversations: Iterable[Any]) -> int:
    """About how much text the messages hold; what is not a message holds none."""
    messages = (m for talk in conversations if isinstance(talk, list) for m in talk)
    return sum(
        len(content)
        for message in messages
        if isinstance(message, dict) and isinstance(content := message.get("content"), str)
    )


def _advancing(items: Iterable[Item], advance: Callable[[int], None]) -> Iterator[Item]:
    """The items; each counts as done when the next one is taken."""
    for item in items:
        yield item
        advance(1)


def _tools(columns: Columns, name: str | None) -> list[Any]:
    """The tools of each record; a column with the default name may be absent."""
    if name is None or (name == TOOLS and name not in columns.names):
        return [None] * len(columns)
    return _objects(columns, name)


def _objects(columns: Columns, name: str) -> list[Any]:
    require_name(columns, name)
    values = columns.values(name)
    return without_nulls(values) if isinstance(columns, ArrowColumns) else values
