"""Where the documents of a dataset come from: tokens, texts or conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.dataset.conversations import documents_from_messages
from quire.dataset.options import DatasetOptions
from quire.dataset.records import Columns
from quire.dataset.texts import text_batches
from quire.documents import Documents
from quire.errors import InvalidOption
from quire.formats.bad_records import BadRecords
from quire.formats.token_columns import (
    TOKENS,
    WATCHED,
    documents_from_columns,
)
from quire.ledger import Ledger, Tally, TokenTally
from quire.progress import progress_bar
from quire.text import as_tokenizer
from quire.text.encode import encode_contents, with_specials
from quire.text.encoded import Encoded


def documents_of(columns: Columns, options: DatasetOptions) -> Documents:
    """The documents of all records."""
    if options.messages_column is not None:
        options.require_unset("tokens", "columns")
        options.require_unset("text", "truncate_at", "truncate_to")
        documents = documents_from_messages(columns, options)
    elif _are_tokenized(columns, options):
        options.require_unset("text", "truncate_at", "truncate_to")
        documents = _from_tokens(columns, options)
    else:
        options.require_unset("tokens", "columns")
        return _from_texts(columns, options)
    return _within(documents, options.drop_longer_than)


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
        max_bad_records=options.max_bad_records,
        vocab_size=known,
    )


def _with_tokens_named(columns: Columns, wanted: Sequence[str], tokens: str) -> pa.Table:
    """The columns, with the tokens under their usual name."""
    others = [name for name in wanted if name not in (tokens, TOKENS)]
    return pa.table({TOKENS: columns.column(tokens), **{n: columns.column(n) for n in others}})


def _from_texts(columns: Columns, options: DatasetOptions) -> Documents:
    tokenizer = as_tokenizer(options.tokenizer)
    bad = BadRecords(len(columns), options.max_bad_records)
    parts = []
    with progress_bar("tokenizing", len(columns), show=options.progress) as advance:
        for texts in text_batches(columns, options.text_column, bad):
            parts.append(encode_contents(texts, tokenizer, options))
            advance(len(texts))
    # Asked of every part, so that a large vocabulary need not be read for its size.
    known = all(part.from_vocabulary for part in parts)
    encoded = replace(Encoded.joined(parts), from_vocabulary=known)
    return with_specials(encoded, tokenizer, options, bad)


def _within(documents: Documents, drop_longer_than: int | None) -> Documents:
    return (
        documents
        if drop_longer_than is None
        else without(documents, documents.lengths > drop_longer_than, "too_long")
    )


def without(documents: Documents, which: npt.NDArray[np.bool], reason: str) -> Documents:
    """All but these documents, which are counted under this reason."""
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
