"""The conversations of records as documents, with labels on what the assistant says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from quire.dataset.records import ArrowColumns, Columns, require_name
from quire.documents import Documents
from quire.errors import InvalidDocument, InvalidOption
from quire.formats.bad_records import BadRecords
from quire.formats.fields import TOOLS, without_nulls
from quire.formats.token_columns import TOKENS
from quire.ledger import Ledger, Tally
from quire.progress import progress_bar
from quire.text.chat import conversation_encoder
from quire.text.chat.template import as_chat_tokenizer
from quire.text.encoded import Encoded

if TYPE_CHECKING:
    from quire.dataset.options import DatasetOptions


def documents_from_messages(columns: Columns, options: DatasetOptions) -> Documents:
    """One document per conversation."""
    if options.tokenizer is None:
        raise InvalidOption("messages need a tokenizer with a chat template; pass tokenizer=")
    tokenizer = as_chat_tokenizer(options.tokenizer)
    encode = conversation_encoder(tokenizer, options.assistant_only, options.chat_date)
    conversations = _values(columns, str(options.messages_column))
    tools = _tools(columns, options.tools_column)
    bad = BadRecords(len(conversations), options.max_bad_records)
    ids: list[list[int]] = []
    labels: list[list[int]] = []
    with progress_bar("rendering", len(conversations), show=options.progress) as advance:
        for number, messages in enumerate(conversations):
            try:
                _require_utf8(messages, tools[number])
                tokens, targets = encode(messages, tools[number])
            except InvalidDocument as error:
                bad.add(number, str(error))
                tokens, targets = [], []
            ids.append(tokens)
            labels.append(targets)
            advance(1)
    return _documents(Encoded.of_lists(ids), Encoded.of_lists(labels), bad)


def _documents(tokens: Encoded, labels: Encoded, bad: BadRecords) -> Documents:
    usable = bad.good & (tokens.lengths > 0)
    empty = int((bad.good & (tokens.lengths == 0)).sum())
    return Documents(
        columns={TOKENS: pa.array(tokens.tokens), "labels": pa.array(labels.tokens)},
        offsets=(np.cumsum(tokens.lengths) - tokens.lengths)[usable],
        lengths=tokens.lengths[usable],
        numbers=np.flatnonzero(usable),
        ledger=bad.ledger() + Ledger(documents=Tally(input=empty, dropped={"empty": empty})),
    )


def _require_utf8(*values: object) -> None:
    for value in values:
        if isinstance(value, UnicodeDecodeError):
            raise InvalidDocument("is not UTF-8")


def _tools(columns: Columns, name: str | None) -> list[Any]:
    """The tools of each record; a column that is only looked for by convention may be absent."""
    if name is None or (name == TOOLS and name not in columns.names):
        return [None] * len(columns)
    return _values(columns, name)


def _values(columns: Columns, name: str) -> list[Any]:
    require_name(columns, name)
    values = columns.values(name)
    return without_nulls(values) if isinstance(columns, ArrowColumns) else values
