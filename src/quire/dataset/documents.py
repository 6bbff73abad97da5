"""The documents of a dataset: from tokens, from texts or from conversations."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.dataset.options import DatasetOptions
from quire.dataset.recognition import is_chat, recognized
from quire.dataset.records import ArrowColumns, Columns, require_name
from quire.documents import Documents
from quire.errors import InvalidDocument, InvalidOption
from quire.formats.arrays import is_text
from quire.formats.bad_records import BadRecords
from quire.formats.fields import Fields
from quire.formats.record_kinds import (
    KINDS,
    TEXT,
    TOKENS_KIND,
    WITH_IMAGES,
    Pair,
    RecordProblem,
    Sample,
    kinds_of,
    likely_column,
    num_characters,
    remedy,
)
from quire.formats.token_columns import TOKENS, WATCHED, documents_from_columns
from quire.ledger import Ledger, Tally, TokenTally
from quire.options import TEXT_ONLY
from quire.options.names import setting
from quire.progress import progress_bar
from quire.text import as_tokenizer
from quire.text.chat import conversation_encoder
from quire.text.chat.template import as_chat_tokenizer
from quire.text.encode import encode_contents, with_specials
from quire.text.encoded import Encoded
from quire.text.engine import open_chat_engine, open_tokenizer
from quire.text.fast_tokenizer import TokenizerMismatch
from quire.text.samples import CompletionEncoder, SampleEncoder, encode_samples

_BATCH_BYTES = 1 << 24
"""Text passed to the tokenizer at once: enough for its threads, little compared to the tokens."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

Item = TypeVar("Item")


def documents_of(columns: Columns, options: DatasetOptions, day: datetime.date) -> Documents:
    """The documents of all records; ``day`` is for chat templates that ask for the date."""
    options = replace(options, **recognized(options, columns.examples()))
    if options.record_kind in WITH_IMAGES:
        raise InvalidOption(
            "the records have images, which pack_dataset would leave out; pack them on disk "
            "(quire pack, pack_corpus) or as they are read (quire.vision.PackedVLDataset)"
        )
    if options.has_answers:
        options.require_unset("tokens", "columns")
        options.require_unset("text", *TEXT_ONLY)
        options = replace(options, chat_date=options.chat_date or day)
        documents = _from_answers(columns, options)
    elif _are_tokenized(columns, options):
        options.require_unset("text", *TEXT_ONLY)
        documents = _from_tokens(columns, options)
    else:
        options.require_unset("tokens", "columns")
        return _from_texts(columns, options)
    if options.drop_longer_than is None:
        return documents
    return without(documents, _too_long(documents, options.drop_longer_than), "too_long")


def _too_long(documents: Documents, limit: int) -> npt.NDArray[np.bool]:
    """Documents over a limit; with one of a pair, the other."""
    too_long: npt.NDArray[np.bool] = documents.lengths > limit
    if not documents.is_paired:
        return too_long
    return np.isin(documents.numbers >> 1, documents.numbers[too_long] >> 1)


def without(documents: Documents, which: npt.NDArray[np.bool], reason: str) -> Documents:
    """All but these documents, which are counted as dropped for this reason."""
    if not which.any():
        return documents
    count = int(which.sum())
    tokens = int(documents.lengths[which].sum()) - count * documents.ends_with_eos
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
    _require_column(columns, options.text_column, TEXT)
    num_bytes = _mean_bytes(columns, options.text_column) * num_records
    tokenizer = open_tokenizer(options.tokenizer, options.tokenizer_engine, num_bytes)
    bad = BadRecords(num_records, options.max_bad_records)
    parts = []
    with progress_bar("tokenizing", num_records, show=options.progress) as advance:
        first = 0
        for texts in _text_batches(columns, options.text_column, bad):
            problems: dict[int, str] = {}
            try:
                parts.append(encode_contents(texts, tokenizer, options, problems))
            except TokenizerMismatch as error:  # it counts from the start of the batch
                record = first + error.document
                raise TokenizerMismatch(f"record {record}: {error}", record) from error
            for number, problem in problems.items():
                bad.add(first + number, problem)
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
                fits = _other_kind(columns.examples()[first + number :][:1], TEXT)
                bad.add(first + number, problem, fits)
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


def _from_answers(columns: Columns, options: DatasetOptions) -> Documents:
    """Documents with labels on what is answered: of conversations, completions or pairs."""
    if options.tokenizer is None:
        holds = KINDS[str(options.record_kind)].holds.partition(" with ")[0]
        raise InvalidOption(f"{holds} need a tokenizer; pass tokenizer=")
    fields = Fields(
        kind=str(options.record_kind),
        is_chat=is_chat(options, columns.examples(), options.tokenizer),
        messages_column=options.messages_column,
        tools_column=options.tools_column,
    )
    rows = _records(columns, fields)
    encoder = _sample_encoder(options, fields, sum(map(num_characters, rows)))
    bad = BadRecords(len(rows), options.max_bad_records)
    with progress_bar("rendering", len(rows), show=options.progress) as advance:
        samples = _samples(_advancing(rows, advance), fields, bad)
        try:
            documents = encode_samples(
                samples, encoder, bad, in_pairs=options.record_kind == "preference"
            )
        except TokenizerMismatch as error:
            record = error.document
            raise TokenizerMismatch(f"record {record}: {error}", record) from error
    return documents


def _sample_encoder(options: DatasetOptions, fields: Fields, num_bytes: int) -> SampleEncoder:
    if not fields.is_chat:
        engine = open_tokenizer(options.tokenizer, options.tokenizer_engine, num_bytes)
        return CompletionEncoder(engine, options, options.assistant_only)
    tokenizer = as_chat_tokenizer(options.tokenizer)
    engine = open_chat_engine(tokenizer, options.tokenizer_engine, num_bytes)
    return conversation_encoder(tokenizer, options.assistant_only, options.chat_date, engine)


def _records(columns: Columns, fields: Fields) -> Sequence[Mapping[str, Any]]:
    """All records; a column of tools with the default name may be absent."""
    tools = (fields.tools_column,) if fields.needs_tools else ()
    for name in (*fields.columns, *tools):
        _require_column(columns, str(name), fields.kind)
    optional = (name for name in fields.optional_columns if name in columns.names)
    return columns.records([*dict.fromkeys((*fields.columns, *optional))])


def _require_column(columns: Columns, name: str, kind: str) -> None:
    """Raise unless there is such a column; names the option for what there is instead."""
    if name not in columns.names and (fits := _other_kind(columns.examples()[:1], kind)):
        raise InvalidDocument(
            f"there is no column {name!r}; the first record holds {KINDS[fits].holds}: use "
            f"{setting('record_kind', fits)}"
        )
    try:
        require_name(columns, name)
    except InvalidOption as error:
        records = columns.examples()[:1] if kind == TEXT else []
        if found := next(map(likely_column, records), ""):
            raise InvalidOption(f"{error}; {remedy(found)}") from None
        raise


def _other_kind(records: Iterable[Mapping[str, Any]], kind: str) -> str:
    """The kind that one record fits, if that is another one."""
    found = next((name for record in records for name in kinds_of(record)), kind)
    return found if found not in (kind, TOKENS_KIND) else ""


def _samples(
    rows: Iterable[Mapping[str, Any]], fields: Fields, bad: BadRecords
) -> Iterator[Sample | Pair | None]:
    for number, row in enumerate(rows):
        try:
            yield fields.of(row)
        except RecordProblem as problem:
            bad.add(number, str(problem), problem.fits or "")
            yield None


def _advancing(items: Iterable[Item], advance: Callable[[int], None]) -> Iterator[Item]:
    """The items; each counts as done when the next one is taken."""
    for item in items:
        yield item
        advance(1)
