"""Encoders: batches of texts, conversations or tokens in, the documents of a shard out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.corpus.options import CorpusOptions
from quire.documents import Documents
from quire.errors import InvalidDocument, OversizedDocument, QuireError
from quire.formats.arrays import is_number_list, list_lengths, list_values
from quire.formats.fields import Conversation
from quire.formats.files import InputFile
from quire.formats.format import BadRecord, Batch
from quire.formats.token_columns import TOKENS, documents_from_columns
from quire.ledger import Ledger
from quire.text import Encoded, Tokenizer, TokenizerLike, as_tokenizer
from quire.text.chat import conversation_encoder
from quire.text.chat.template import ChatTokenizer
from quire.text.encode import encode_contents, with_specials

FILE_SHIFT = 40
"""The id of a document is its file's number times 2**40 plus its record's number."""


class Encoder(Protocol):
    """Collects the records of a shard and returns its documents."""

    bad: list[BadRecord]
    """Records that were skipped so far."""

    def add(self, batch: Batch, file: InputFile) -> int:
        """Encode a batch; returns the number of its tokens."""

    def documents(self) -> Documents:
        """All documents; their numbers are ids."""


def make_encoder(
    options: CorpusOptions, tokenizer: TokenizerLike | None, columns: dict[str, str]
) -> Encoder:
    """The encoder for the kind of records that the options name."""
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


def require_fitting(
    lengths: npt.NDArray[np.int64],
    longest: int,
    ids: npt.NDArray[np.int64],
    files: Sequence[str],
) -> None:
    """Raise for a document that does not fit, by file and record, which the planner cannot name."""
    overlong = lengths > longest
    if overlong.any():
        first = int(np.argmax(overlong))
        file, record = divmod(int(ids[first]), 1 << FILE_SHIFT)
        raise OversizedDocument(
            f"{files[file]}: record {record} has {lengths[first]} tokens but a row holds "
            f"{longest}; split it (overlong='split'), cut it (overlong='truncate') or raise "
            "max_length"
        )


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
        self._tokenizer, self._options = tokenizer, options
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
            # Find the record: the tokenizer does not say which of thousands failed.
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
    """The documents of all parts, with the prefix token of the first part.

    Special tokens are added to each part: adding them to the whole would need three times the
    memory of its tokens.
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
                reason = str(error).partition(":")[0]  # what follows may repeat the text
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
        """List the skipped records, with the lengths that differ."""
        missing = np.setdiff1d(np.arange(table.num_rows), documents.numbers)
        for row in missing.tolist():
            values = {name: table[name][row].as_py() for name in self._columns}
            if values[TOKENS] == [] and all(value == [] for value in values.values()):
                continue  # empty, which is not an error
            batch.bad.append(
                BadRecord(
                    file=batch.file, record=batch.records[row], offset=None, reason=_reason(values)
                )
            )


def _as_lists(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray | pa.ListArray:
    """Plain lists from plain, large, fixed-size or view lists, which may differ between files.

    Arrow's own cast makes invalid arrays from views and slices. Lists that are all empty have no
    value type.
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
