"""Encoders: batches of texts, conversations or tokens in, the documents of a shard out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.corpus.options import CorpusOptions
from quire.documents import Documents, Media
from quire.errors import InvalidDocument, OversizedDocument, QuireError
from quire.formats.arrays import is_number_list, list_lengths, list_values
from quire.formats.bad_records import BadRecords
from quire.formats.files import InputFile
from quire.formats.format import BadRecord, Batch
from quire.formats.record_kinds import Pair, Sample
from quire.formats.token_columns import TOKENS, documents_from_columns
from quire.ledger import Ledger
from quire.options.names import option, setting
from quire.text import Encoded, Tokenizer, TokenizerLike
from quire.text.chat import conversation_encoder
from quire.text.chat.template import ChatTokenizer
from quire.text.encode import encode_contents, with_specials
from quire.text.fast_tokenizer import TokenizerMismatch
from quire.text.samples import CompletionEncoder, SampleEncoder, encode_samples

FILE_SHIFT = 40
"""The id of a document is its file's number times 2**40 plus its record's number."""


class Encoder(ABC):
    """Collects the records of a shard and returns its documents.

    A batch becomes documents at once: joining the records first would need more memory.
    """

    def __init__(self) -> None:
        self.bad: list[BadRecord] = []
        """Records that were skipped so far."""
        self._parts: list[Documents] = []

    def add(self, batch: Batch, file: InputFile) -> int:
        """Encode a batch; returns the number of its tokens."""
        bad = BadRecords(len(batch.records), limit=len(batch.records))
        part = self._encode(batch, file, bad)
        self.bad += batch.bad
        for index, reason in bad.reasons.items():
            record, offset = batch.records[index], batch.offsets[index] if batch.offsets else None
            bad_one = BadRecord(file=batch.file, record=record, offset=offset, reason=reason)
            self.bad.append(bad_one)
        records = np.array(batch.records, dtype=np.int64)
        if part.is_paired:
            numbers = 2 * records[part.numbers >> 1] + (part.numbers & 1)
        else:
            numbers = records[part.numbers]
        numbers += document_id(batch.file, 0)
        media = part.media and replace(part.media, numbers=numbers)
        self._parts.append(replace(part, numbers=numbers, media=media))
        return int(part.lengths.sum())

    def documents(self) -> Documents:
        """All documents; their numbers are ids. The encoder is empty afterwards."""
        parts, self._parts = self._parts, []
        return _joined(parts) if parts else self._no_documents()

    @abstractmethod
    def _encode(self, batch: Batch, file: InputFile, bad: BadRecords) -> Documents:
        """The documents of a batch, numbered by index; records that cannot be used are added."""

    @abstractmethod
    def _no_documents(self) -> Documents:
        """No documents, with the same columns and special tokens."""


def make_encoder(
    options: CorpusOptions,
    tokenizer: TokenizerLike | None,
    columns: Mapping[str, str],
    engine: Tokenizer | None = None,
    *,
    is_chat: bool = False,
) -> Encoder:
    """The encoder for the kind of records that the options name; the tokenizer is loaded.

    ``engine`` encodes what a chat template renders, if ``is_chat``.
    """
    if options.pretokenized:
        known = None if tokenizer is None else cast(Tokenizer, tokenizer).vocab_size
        return _Tokens(columns, known)
    in_pairs = options.record_kind == "preference"
    if is_chat:
        chat = cast(ChatTokenizer, tokenizer)
        only, date = options.assistant_only, options.chat_date
        return _Samples(conversation_encoder(chat, only, date, engine), in_pairs)
    if options.has_answers:
        texts = CompletionEncoder(cast(Tokenizer, tokenizer), options, options.assistant_only)
        return _Samples(texts, in_pairs)
    return _Texts(cast(Tokenizer, tokenizer), options)


def document_id(file: int, record: int) -> int:
    """One number for a record of a file.

    >>> document_id(2, 5) >> FILE_SHIFT, document_id(2, 5) & (1 << FILE_SHIFT) - 1
    (2, 5)
    """
    return (file << FILE_SHIFT) + record


def record_of(document: int, record_kind: str | None = None) -> tuple[int, int, str]:
    """The file, the record in it, and the answer that a document is if its record has two.

    >>> record_of(document_id(2, 5)), record_of(document_id(2, 5), "preference")
    ((2, 5, ''), (2, 2, 'rejected'))
    """
    file, number = divmod(document, 1 << FILE_SHIFT)
    if record_kind != "preference":
        return file, number, ""
    return file, number // 2, ("chosen", "rejected")[number % 2]


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
            f"{longest}; split it ({setting('overlong', 'split')}), cut it "
            f"({setting('overlong', 'truncate')}) or raise {option('max_length')}"
        )


class _Texts(Encoder):
    def __init__(self, tokenizer: Tokenizer, options: CorpusOptions) -> None:
        super().__init__()
        self._tokenizer, self._options = tokenizer, options

    def _encode(self, batch: Batch, file: InputFile, bad: BadRecords) -> Documents:
        texts = cast(list[str], batch.values)
        problems: dict[int, str] = {}
        try:
            encoded = encode_contents(texts, self._tokenizer, self._options, problems)
        except TokenizerMismatch as error:
            record = batch.records[error.document]
            raise TokenizerMismatch(f"{file.path}: record {record}: {error}") from error
        except Exception:
            # Find the record: the tokenizer does not say which of thousands failed.
            for record, text in zip(batch.records, texts, strict=True):
                try:
                    encode_contents([text], self._tokenizer, self._options, {})
                except Exception as error:
                    raise _failed(file, record, error) from error
            raise
        for index, problem in problems.items():
            bad.add(index, problem)
        return with_specials(encoded, self._tokenizer, self._options, bad)

    def _no_documents(self) -> Documents:
        nothing = Encoded.of_lists([], from_vocabulary=True)
        return with_specials(nothing, self._tokenizer, self._options)


def _failed(file: InputFile, record: int, error: Exception) -> InvalidDocument:
    problem = str(error) if isinstance(error, QuireError) else f"{type(error).__name__}: {error}"
    problem = problem.removeprefix("document 0 ")
    return InvalidDocument(f"{file.path}: record {record} cannot be encoded: {problem}")


class _Samples(Encoder):
    """Conversations, completions, or pairs of these."""

    def __init__(self, encoder: SampleEncoder, in_pairs: bool) -> None:
        super().__init__()
        self._encoder, self._in_pairs = encoder, in_pairs

    def _encode(self, batch: Batch, file: InputFile, bad: BadRecords) -> Documents:
        samples = cast(list[Sample | Pair], batch.values)
        problem, in_pairs = _problem_without_text, self._in_pairs
        try:
            return encode_samples(samples, self._encoder, bad, problem, in_pairs=in_pairs)
        except TokenizerMismatch as error:
            record = batch.records[error.document // (1 + self._in_pairs)]
            raise TokenizerMismatch(f"{file.path}: record {record}: {error}") from error

    def _no_documents(self) -> Documents:
        nothing = encode_samples([], self._encoder, BadRecords(0))
        return replace(nothing, is_paired=self._in_pairs)


def _problem_without_text(error: InvalidDocument) -> str:
    return str(error).partition(":")[0]  # what follows may repeat the text


class _Tokens(Encoder):
    def __init__(self, columns: Mapping[str, str], vocab_size: int | None) -> None:
        super().__init__()
        self._columns, self._vocab_size = columns, vocab_size or 2**31

    def _encode(self, batch: Batch, file: InputFile, bad: BadRecords) -> Documents:
        given = cast(pa.Table, batch.values)
        table = pa.table({name: _typed(given[name], kind) for name, kind in self._columns.items()})
        try:
            return self._documents(table, bad)
        except InvalidDocument as error:
            first = batch.records[0] if batch.records else 0
            raise InvalidDocument(f"{file.path}, counted from record {first}: {error}") from error

    def _documents(self, table: pa.Table, bad: BadRecords) -> Documents:
        return documents_from_columns(
            table, list(self._columns), bad=bad, vocab_size=self._vocab_size
        )

    def _no_documents(self) -> Documents:
        schema = {name: pa.list_(pa.type_for_alias(kind)) for name, kind in self._columns.items()}
        return self._documents(pa.schema(schema).empty_table(), BadRecords(0))


def _typed(column: pa.ChunkedArray, kind: str) -> pa.ChunkedArray | pa.ListArray:
    """The column with a type of values, which lists that are all empty or hold only nulls lack."""
    if not is_number_list(column.type) or not pa.types.is_null(column.type.value_type):
        return column
    values = list_values(column)
    if kind != "null":
        values = values.cast(pa.type_for_alias(kind))
    offsets = np.append(0, np.cumsum(list_lengths(column))).astype(np.int32)
    missing = pa.array(column.is_null().to_numpy())
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=missing)


def _joined(parts: Sequence[Documents]) -> Documents:
    """The documents of all parts, with the prefix token of the first part."""
    first = parts[0]
    if len(parts) == 1:
        return first
    sizes = [len(part.columns[TOKENS]) for part in parts]
    starts = np.cumsum([0, *sizes[:-1]])
    return replace(
        first,
        columns={
            name: pa.concat_arrays([part.columns[name] for part in parts]) for name in first.columns
        },
        offsets=np.concatenate(
            [part.offsets + start for part, start in zip(parts, starts, strict=True)]
        ),
        lengths=np.concatenate([part.lengths for part in parts]),
        numbers=np.concatenate([part.numbers for part in parts]),
        media=first.media and Media.joined([part.media for part in parts if part.media]),
        ledger=sum((part.ledger for part in parts), Ledger()),
    )
