"""Where the documents of a dataset come from: tokens, texts or conversations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from quire.documents import Documents, EncodeOptions, TokenizerLike, as_tokenizer
from quire.documents.bad_records import BadRecords
from quire.documents.chat import ChatTokenizer, encode_conversations
from quire.documents.encode import encode_contents, with_specials
from quire.documents.encoded import Encoded
from quire.documents.list_columns import TOKENS, documents_from_columns
from quire.errors import InvalidDocument, InvalidOption, unknown_name
from quire.progress import progress_bar

_BATCH_BYTES = 1 << 24
"""Text handed to the tokenizer at once: enough for its threads, little beside the tokens."""

_TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_null,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackSource:
    """How records are read."""

    tokenizer: TokenizerLike | None = None
    feature: str = "text"
    columns: Sequence[str] | None = None
    messages: str | None = None
    assistant_only: bool = True
    encode: EncodeOptions
    max_bad_records: int = 0
    progress: bool | None = None


def documents_of(table: pa.Table, source: PackSource) -> Documents:
    """The documents of all records."""
    if source.messages is not None:
        return _from_messages(table, source)
    if source.tokenizer is None:
        if TOKENS not in table.column_names:
            raise InvalidOption(
                f"the dataset has no {TOKENS!r} column (it has {', '.join(table.column_names)}); "
                "pass a tokenizer to pack its text"
            )
        return documents_from_columns(table, source.columns, max_bad_records=source.max_bad_records)
    if source.feature not in table.column_names and TOKENS in table.column_names:
        return documents_from_columns(
            table,
            source.columns,
            max_bad_records=source.max_bad_records,
            vocab_size=as_tokenizer(source.tokenizer).vocab_size,
        )
    return _from_texts(table, source)


def _from_texts(table: pa.Table, source: PackSource) -> Documents:
    column = _column(table, source.feature)
    if not any(is_text(column.type) for is_text in _TEXT_TYPES):
        raise InvalidDocument(
            f"column {source.feature!r} holds {column.type} but text is needed; name the column "
            "of the text with feature="
        )
    tokenizer = as_tokenizer(source.tokenizer)
    bad = BadRecords(len(column), source.max_bad_records)
    parts = []
    with progress_bar("tokenizing", len(column), show=source.progress) as advance:
        for first, texts in _text_batches(column):
            for number in (i for i, text in enumerate(texts) if text is None):
                bad.add(first + number, f"has no {source.feature}")
            contents = [text or "" for text in texts]
            parts.append(encode_contents(contents, tokenizer, source.encode))
            advance(len(texts))
    return with_specials(Encoded.joined(parts), tokenizer, source.encode, bad)


def _text_batches(column: pa.ChunkedArray) -> Iterator[tuple[int, list[str | None]]]:
    """(first record, texts) of batches with about so many bytes."""
    mean = max(1, column.nbytes // max(1, len(column)))
    size = max(1, _BATCH_BYTES // mean)
    for first in range(0, len(column), size):
        yield first, column.slice(first, size).to_pylist()


def _from_messages(table: pa.Table, source: PackSource) -> Documents:
    if source.tokenizer is None:
        raise InvalidOption("messages need a tokenizer with a chat template; pass tokenizer=")
    conversations = _column(table, str(source.messages)).to_pylist()
    bad = BadRecords(len(conversations), source.max_bad_records)
    for number in (i for i, messages in enumerate(conversations) if not messages):
        bad.add(number, f"has no {source.messages}")
    present = [messages for messages in conversations if messages]
    ids, labels = [], []
    with progress_bar("rendering", len(present), show=source.progress) as advance:
        rendered = encode_conversations(
            present, cast(ChatTokenizer, source.tokenizer), assistant_only=source.assistant_only
        )
        for conversation in rendered:
            ids.append(conversation[0])
            labels.append(conversation[1])
            advance(1)
    tokens, targets = Encoded.of_lists(ids), Encoded.of_lists(labels)
    return Documents(
        columns={TOKENS: pa.array(tokens.tokens), "labels": pa.array(targets.tokens)},
        offsets=np.cumsum(tokens.lengths) - tokens.lengths,
        lengths=tokens.lengths,
        numbers=np.flatnonzero(bad.good),
        ledger=bad.ledger(),
    )


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise unknown_name("column", name, table.column_names)
    return table[name]
