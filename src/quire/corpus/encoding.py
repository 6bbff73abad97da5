"""Batches of records to the documents of one shard: texts, conversations or tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa

from quire.corpus.options import CorpusOptions
from quire.documents import Documents
from quire.errors import InvalidDocument, QuireError
from quire.formats.arrays import is_number_list, list_lengths, list_values
from quire.formats.fields import Conversation
from quire.formats.files import InputFile
from quire.formats.format import BadRecord, Batch
from quire.formats.token_columns import TOKENS, documents_from_columns
from quire.ledger import Ledger
from quire.text import Encoded, Tokenizer, TokenizerLike, as_tokenizer
from quire.text.chat import conversation_encoder
from quire.text.chat_template import ChatTokenizer
from quire.text.encode import encode_contents, with_specials

FILE_SHIFT = 40
"""A document's id is its file's number times 2**40, plus its record's number in the file."""


class Encoder(Protocol):
    """Takes the records of a shard, gives its documents; ``bad`` grows on the way."""

    bad: list[BadRecord]

    def add(self, batch: Batch, file: InputFile) -> int:
        """Take a batch; how many tokens it has."""

    def documents(self) -> Documents:
        """All documents, numbered by their ids."""


def make_encoder(
    options: CorpusOptions, tokenizer: TokenizerLike | None, columns: dict[str, str]
) -> Encoder:
    """The encoder of what the options say that records are."""
    if options.pretokenized:
        known = None if tokenizer is None else as_tokenizer(tokenizer).vocab_size
        return _Tokens(columns, known)
    if options.messages_column is not None:
        return _Conversations(cast(ChatTokenizer, tokenizer), options)
    return _Texts(as_tokenizer(tokenizer), options)


def document_id(file: int, record: int) -> int:
    """One number for a record of a file.

    >>> document_id(2, 5) >> FILE_SHIFT, document_id(2, 5) & (1 << FILE_SHIFT) - 1
    (2, 5)
    """
    return (file << FILE_SHIFT) + record


class _Ids:
    def __init__(self) -> None:
        self.bad: list[BadRecord] = []
        self._ids: list[int] = []

    def _take(self, batch: Batch) -> None:
        self.bad += batch.bad
        self._ids += [document_id(batch.file, record) for record in batch.records]

    def _numbered(self, documents: Documents) -> Documents:
        ids = np.array(self._ids, dtype=np.int64)
        return replace(documents, numbers=ids[documents.numbers])


class _Texts:
    def __init__(self, tokenizer: Tokenizer, options: CorpusOptions) -> None:
        self.bad: list[BadRecord] = []
        self._tokenizer, self._options = tokenizer, options.encode_options()
        self._parts: list[Documents] = []

    def add(self, batch: Batch, file: InputFile) -> int:
        self.bad += batch.bad
        encoded = self._encode(batch, file)
        part = with_specials(encoded, self._tokenizer, self._options)
        ids = document_id(batch.file, 0) + np.array(batch.records, dtype=np.int64)
        self._parts.append(replace(part, numbers=ids[part.numbers]))
        return len(encoded.tokens)

    def _encode(self, batch: Batch, file: InputFile) -> Encoded:
        texts = cast(list[str], batch.values)
        try:
            return encode_contents(texts, self._tokenizer, self._options)
        except Exception:
            # Which one is it? A batch has thousands, and the tokenizer says nothing of them.
            for record, text in zip(batch.records, texts, strict=True):
                try:
                    encode_contents([text], self._tokenizer, self._options)
                except Exception as error:
                    raise _failed(file, record, error) from error
            raise

    def documents(self) -> Documents:
        parts, self._parts = self._parts, []
        return _joined(parts or [with_specials(_NOTHING, self._tokenizer, self._options)])


_NOTHING = Encoded.of_lists([], from_vocabulary=True)


def _joined(parts: list[Documents]) -> Documents:
    """The documents of all parts; each part brings its own opening token, the first one's is used.

    Specials are added to each part, not to the whole: that would hold the tokens three times.
    """
    sizes = [len(part.columns[TOKENS]) for part in parts]
    starts = np.cumsum([0, *sizes[:-1]])
    return replace(
        parts[0],
        columns={TOKENS: pa.concat_arrays([part.columns[TOKENS] for part in parts])},
        offsets=np.concatenate(
            [part.offsets + start for part, start in zip(parts, starts, strict=True)]
        ),
        lengths=np.concatenate([part.lengths for part in parts]),
        numbers=np.concatenate([part.numbers for part in parts]),
        ledger=sum((part.ledger for part in parts), Ledger()),
    )


def _failed(file: InputFile, record: int, error: Exception) -> InvalidDocument:
    said = str(error) if isinstance(error, QuireError) else f"{type(error).__name__}: {error}"
    said = said.removeprefix("document 0 ")
    return InvalidDocument(f"{file.path}: record {record} cannot be encoded: {said}")


class _Conversations(_Ids):
    def __init__(self, tokenizer: ChatTokenizer, options: CorpusOptions) -> None:
        super().__init__()
        self._encode = conversation_encoder(tokenizer, options.assistant_only, options.chat_date)
        self._tokens: list[list[int]] = []
        self._labels: list[list[int]] = []

    def add(self, batch: Batch, file: InputFile) -> int:
        good = Batch(file=batch.file, bad=batch.bad)
        count = 0
        talks = cast(list[Conversation], batch.values)
        for record, (messages, tools) in zip(batch.records, talks, strict=True):
            try:
                tokens, labels = self._encode(messages, tools)
            except InvalidDocument as error:
                reason = str(error).partition(":")[0]  # a template may repeat the text behind it
                good.bad.append(
                    BadRecord(file=batch.file, record=record, offset=None, reason=reason)
                )
                continue
            good.records.append(record)
            self._tokens.append(tokens)
            self._labels.append(labels)
            count += len(tokens)
        self._take(good)
        return count

    def documents(self) -> Documents:
        table = pa.table(
            {
                TOKENS: pa.array(self._tokens, pa.list_(pa.int32())),
                "labels": pa.array(self._labels, pa.list_(pa.int32())),
            }
        )
        return self._numbered(documents_from_columns(table, ["labels"]))


class _Tokens(_Ids):
    def __init__(self, columns: dict[str, str], vocab_size: int | None) -> None:
        super().__init__()
        self._columns, self._vocab_size = columns, vocab_size
        self._tables: list[pa.Table] = []
        self._files: list[str] = []

    def add(self, batch: Batch, file: InputFile) -> int:
        given = cast(pa.Table, batch.values)
        table = pa.table(
            {name: _as_lists(given[name], kind) for name, kind in self._columns.items()}
        )
        documents = self._read(table, f"{file.path}, counted from record {_first(batch)}")
        self._note_bad(batch, table, documents)
        self._take(batch)
        self._tables.append(table)
        return int(documents.lengths.sum())

    def documents(self) -> Documents:
        schema = {name: pa.list_(pa.type_for_alias(kind)) for name, kind in self._columns.items()}
        tables = self._tables or [pa.schema(schema).empty_table()]
        return self._numbered(self._read(pa.concat_tables(tables), "the partition"))

    def _read(self, table: pa.Table, where: str) -> Documents:
        others = [name for name in self._columns if name != TOKENS]
        try:
            return documents_from_columns(
                table, others, max_bad_records=table.num_rows, vocab_size=self._vocab_size or 2**31
            )
        except InvalidDocument as error:
            raise InvalidDocument(f"{where}: {error}") from error

    def _note_bad(self, batch: Batch, table: pa.Table, documents: Documents) -> None:
        """List the records that were left out, with the lengths that disagree."""
        missing = np.setdiff1d(np.arange(table.num_rows), documents.numbers)
        for row in missing.tolist():
            values = {name: table[name][row].as_py() for name in self._columns}
            if values[TOKENS] == [] and all(value == [] for value in values.values()):
                continue  # empty, which is no fault
            batch.bad.append(
                BadRecord(
                    file=batch.file, record=batch.records[row], offset=None, reason=_reason(values)
                )
            )


def _as_lists(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray | pa.ListArray:
    """Lists of one kind: one file has plain ones, another large, fixed-size or viewed ones.

    Arrow's own cast makes invalid arrays of views and of slices. Where all lists are empty, they
    have no type of their own.
    """
    has_no_type = is_number_list(column.type) and pa.types.is_null(column.type.value_type)
    if not is_number_list(column.type) or (pa.types.is_list(column.type) and not has_no_type):
        return column
    values = list_values(column)
    if has_no_type and kind != "null":
        values = values.cast(pa.type_for_alias(kind))
    offsets = np.append(0, np.cumsum(list_lengths(column))).astype(np.int32)
    missing = pa.array(column.is_null().to_numpy())
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=missing)


def _first(batch: Batch) -> int:
    return batch.records[0] if batch.records else 0


def _reason(values: dict[str, list[Any] | None]) -> str:
    for name, value in values.items():
        if value is None:
            return f"has no {name}"
        if None in value:
            return f"has a null inside its {name}"
    return "has " + ", ".join(f"{len(value or [])} {name}" for name, value in values.items())
