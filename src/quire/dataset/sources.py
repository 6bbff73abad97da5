"""Where the documents of a dataset come from: tokens, texts or conversations."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.dataset.conversations import documents_from_messages
from quire.dataset.records import Columns
from quire.dataset.texts import text_batches
from quire.documents import Documents
from quire.errors import InvalidOption
from quire.formats.bad_records import BadRecords
from quire.formats.fields import TOOLS
from quire.formats.token_columns import (
    TOKENS,
    WATCHED,
    documents_from_columns,
    require_column_names,
)
from quire.ledger import Ledger, Tally, TokenTally
from quire.options import require_flags, require_integer
from quire.progress import progress_bar
from quire.text import EncodeOptions, TokenizerLike, as_tokenizer
from quire.text.chat.date import as_chat_date, today
from quire.text.encode import encode_contents, with_specials
from quire.text.encoded import Encoded


@dataclass(frozen=True, kw_only=True, slots=True)
class PackSource:
    """How records are read."""

    tokenizer: TokenizerLike | None = None
    text_column: str = "text"
    columns: Sequence[str] | None = None
    messages_column: str | None = None
    tools_column: str | None = TOOLS
    assistant_only: bool = True
    chat_date: datetime.date | str | None = None
    encode: EncodeOptions
    max_bad_records: int = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        require_flags(self)
        require_integer("max_bad_records", self.max_bad_records, 0)
        require_column_names(self.columns)
        date = as_chat_date(self.chat_date)
        object.__setattr__(self, "chat_date", date or today())  # one day for all splits
        if date is not None and self.messages_column is None:
            raise InvalidOption(
                f"chat_date={date.isoformat()!r} needs messages_column; leave it out"
            )
        if not isinstance(self.tools_column, str | None):
            raise InvalidOption(
                f"tools_column is {type(self.tools_column).__name__} but must be the name of a "
                "column; put the tools of each conversation beside its messages"
            )
        if self.messages_column is None and self.tools_column not in (TOOLS, None):
            raise InvalidOption(
                f"tools_column={self.tools_column!r} needs messages_column; leave tools_column out"
            )


def documents_of(columns: Columns, source: PackSource) -> Documents:
    """The documents of all records."""
    if source.messages_column is not None:
        _require_unset(source, "messages", "columns", "truncate_at")
        return _within(documents_from_messages(columns, source), source.encode.drop_longer_than)
    if _are_tokenised(columns, source):
        _require_unset(source, "tokenised input", "truncate_at")
        return _within(_from_tokens(columns, source), source.encode.drop_longer_than)
    _require_unset(source, "text", "columns")
    return _from_texts(columns, source)


def _are_tokenised(columns: Columns, source: PackSource) -> bool:
    """Whether tokens are taken as they are; where both could be meant, it is asked."""
    tokens, text = TOKENS in columns.names, source.text_column in columns.names
    if source.tokenizer is None and not tokens and columns.names:
        raise InvalidOption(
            f"the dataset has no {TOKENS!r} column (it has {', '.join(columns.names)}); pass a "
            "tokenizer to pack its text"
        )
    if source.tokenizer is not None and tokens and text:
        raise InvalidOption(
            f"the dataset has both {TOKENS!r} and {source.text_column!r}, and a tokenizer is "
            "given; leave it out to pack the tokens, or remove that column to pack the text"
        )
    return tokens or source.tokenizer is None


def _require_unset(source: PackSource, kind: str, *names: str) -> None:
    given = {"columns": source.columns, "truncate_at": source.encode.truncate_at}
    for name in names:
        if given[name] is not None:
            raise InvalidOption(
                f"{name}={given[name]!r} has no meaning for {kind}; leave {name} out"
            )


def _from_tokens(columns: Columns, source: PackSource) -> Documents:
    wanted = columns.names if source.columns is None else [TOKENS, *source.columns]
    wanted = [*wanted, *(name for name in WATCHED if name in columns.names and name not in wanted)]
    known = as_tokenizer(source.tokenizer).vocab_size if source.tokenizer is not None else None
    return documents_from_columns(
        pa.table({name: columns.column(name) for name in wanted or [TOKENS]}),
        source.columns,
        max_bad_records=source.max_bad_records,
        vocab_size=known,
    )


def _from_texts(columns: Columns, source: PackSource) -> Documents:
    tokenizer = as_tokenizer(source.tokenizer)
    bad = BadRecords(len(columns), source.max_bad_records)
    parts = []
    with progress_bar("tokenizing", len(columns), show=source.progress) as advance:
        for texts in text_batches(columns, source.text_column, bad):
            parts.append(encode_contents(texts, tokenizer, source.encode))
            advance(len(texts))
    # Asked of every part, so that a large vocabulary need not be read for its size.
    known = all(part.from_vocabulary for part in parts)
    encoded = replace(Encoded.joined(parts), from_vocabulary=known)
    return with_specials(encoded, tokenizer, source.encode, bad)


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
