"""Conversations and completions of a stream to documents, of which the answers are trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidDocument, InvalidOption
from quire.formats.bad_records import BadRecords
from quire.formats.record_kinds import Pair, Sample
from quire.labels import DEFAULT
from quire.options import TEXT_ONLY
from quire.options.names import option
from quire.stream.encode import Coder, EncodedTexts, as_documents
from quire.stream.labels import marked
from quire.stream.options import StreamOptions
from quire.stream.reading import Reading
from quire.text import Tokenizer, TokenizerLike
from quire.text.chat import conversation_encoder
from quire.text.chat.template import ChatTokenizer, as_chat_tokenizer, asks_for_date
from quire.text.encode import without_bos
from quire.text.engine import open_chat_engine
from quire.text.samples import CompletionEncoder, SampleEncoder, encode_rendered


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What encodes the records of one source; worker processes receive it."""

    reading: Reading
    options: StreamOptions
    tokenizer: Tokenizer
    chat: ChatTokenizer | None = None
    """Renders messages."""

    @classmethod
    def of(
        cls,
        reading: Reading,
        options: StreamOptions,
        tokenizer: Tokenizer,
        named: TokenizerLike,
        num_bytes: int | None,
    ) -> Answers | None:
        """The answers of a source; None if its records are texts."""
        source = reading.options
        if not source.has_answers:
            return None
        for name in TEXT_ONLY:
            if getattr(options, name) is not None:
                raise InvalidOption(
                    f"{options.name(name)} cuts text, but the records hold questions and answers; "
                    f"leave it out, or set {options.name('drop_longer_than')}"
                )
        if not reading.is_chat:
            found = cls(reading=reading, options=options, tokenizer=tokenizer)
        else:
            chat = as_chat_tokenizer(named)
            _require_date(chat, reading)
            engine = open_chat_engine(chat, options.tokenizer_engine, num_bytes)
            found = cls(reading=reading, options=options, tokenizer=engine, chat=chat)
        found.encoder()  # raises here rather than in a worker process
        return found

    def encoder(self) -> SampleEncoder:
        """What renders the records and encodes the text."""
        source, only = self.reading.options, self.reading.options.assistant_only
        if self.chat is None:
            return CompletionEncoder(self.tokenizer, self.options, only)
        return conversation_encoder(self.chat, only, source.chat_date, self.tokenizer)

    def open(self) -> Coder:
        """The function that encodes records."""
        return partial(_encode, encoder=self.encoder(), options=self.options)


def _require_date(tokenizer: ChatTokenizer, reading: Reading) -> None:
    if reading.options.chat_date is None and asks_for_date(tokenizer):
        raise InvalidOption(
            f"{option('chat_date')} is missing: the chat template writes the date, and a stream "
            "that is resumed on another day must continue with the same one; set it, such as "
            "'2026-11-18'"
        )


def _encode(
    samples: Sequence[Sample | Pair | None], encoder: SampleEncoder, options: StreamOptions
) -> EncodedTexts:
    """The documents of the samples; None is a record that is known to be bad."""
    bad = BadRecords(len(samples), limit=len(samples))
    ids, labels = encode_rendered(samples, encoder, bad, _without_text)
    if options.bos is not None:
        ids, labels = without_bos(ids, labels, options.bos)
    bos = None if options.bos is None else ~options.bos
    silent = _are_silent(ids.lengths, labels) if options.eos is None else None
    contents = marked(ids.tokens, labels), ids.lengths
    return as_documents(*contents, options, bos=bos, problems=bad.reasons, silent=silent)


def _without_text(error: InvalidDocument) -> str:
    return str(error).partition(":")[0]  # what follows may repeat the text


def _are_silent(
    lengths: npt.NDArray[np.int64], labels: npt.NDArray[np.int32]
) -> npt.NDArray[np.bool_]:
    """Which documents have no trained token; those of one token are kept, as in `pack_dataset`."""
    before = np.append(0, np.cumsum(labels != DEFAULT.ignore_index))
    ends = np.cumsum(lengths)
    silent: npt.NDArray[np.bool_] = (before[ends] == before[ends - lengths]) & (lengths > 1)
    return silent
