"""Conversations and completions to documents with labels on the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from quire.documents import Documents
from quire.errors import InvalidDocument, InvalidOption
from quire.formats.bad_records import BadRecords
from quire.formats.record_kinds import Completion, Pair, Sample
from quire.options import EncodeOptions
from quire.options.names import setting
from quire.text.byte_tokenizer import ByteTokenizer
from quire.text.chat import require_encodable
from quire.text.chat.labels import NOTHING, Rendered, label_by_offsets, label_fast
from quire.text.encode import with_specials
from quire.text.encoded import Encoded
from quire.text.fast_tokenizer import FastTokenizer, TokenizerMismatch
from quire.text.giant_words import giant_word
from quire.text.tokenizer import Tokenizer

_BATCH = 1 << 22
"""Characters of rendered text that are encoded at once."""
Labels: TypeAlias = npt.NDArray[np.int32]


class SampleEncoder(Protocol):
    """Renders samples of one kind as text, and encodes the text with labels."""

    def render_sample(self, sample: Any) -> Rendered:  # noqa: ANN401 - a sample of its kind
        """The text, and what of it is trained; raises `InvalidDocument`."""

    def encode_batch(self, batch: Sequence[Rendered]) -> tuple[Encoded, Labels]:
        """The ids of many texts, and their labels."""

    def as_documents(self, ids: Encoded, labels: Labels, bad: BadRecords) -> Documents:
        """The documents, with the special tokens that texts of this kind get."""


class CompletionEncoder:
    """Prompts and completions to ids, with labels on the completion and on EOS.

    Both are tokenized as one text; a token that holds a character of the completion is trained.
    """

    def __init__(self, tokenizer: Tokenizer, options: EncodeOptions, answers_only: bool) -> None:
        self._tokenizer, self._options, self._answers_only = tokenizer, options, answers_only
        self._with_offsets = _with_offsets(tokenizer) if answers_only else None

    def render_sample(self, sample: Completion) -> Rendered:
        """The text, and where the completion is in it."""
        if any(isinstance(part, UnicodeDecodeError) for part in sample):
            raise InvalidDocument("is not UTF-8")
        start, text = len(sample.prompt), sample.prompt + sample.completion
        require_encodable(text)
        if not isinstance(self._tokenizer, ByteTokenizer) and (problem := giant_word(text)):
            raise InvalidDocument(problem)
        return Rendered(text, [(start, len(text))] if self._answers_only else None)

    def encode_batch(self, batch: Sequence[Rendered]) -> tuple[Encoded, Labels]:
        """The ids of many texts, and their labels."""
        fast = self._tokenizer
        if self._with_offsets is None:
            ids = fast.encode_batch([rendered.text for rendered in batch])
            return ids, ids.tokens
        if isinstance(fast, FastTokenizer):
            fast.load()
            if fast.is_fast and fast.token_bytes is not None:
                return label_fast(batch, fast)
        found = [label_by_offsets(rendered, self._with_offsets) for rendered in batch]
        labels = Encoded.of_lists(labels for _, labels in found)
        return Encoded.of_lists(ids for ids, _ in found), labels.tokens

    def as_documents(self, ids: Encoded, labels: Labels, bad: BadRecords) -> Documents:
        """The documents with BOS and EOS, as of texts."""
        return with_specials(ids, self._tokenizer, self._options, bad, labels)


def _with_offsets(tokenizer: Tokenizer) -> Any:  # noqa: ANN401 - any tokenizer that has them
    own = tokenizer.reference if isinstance(tokenizer, FastTokenizer) else tokenizer
    called = getattr(own, "tokenizer", None)
    if not hasattr(own, "encode_with_offsets") or not getattr(called, "is_fast", called is None):
        raise InvalidOption(
            f"{type(called or own).__name__} does not report the characters of its tokens, so "
            "completions cannot be told from prompts; use a tokenizer.json or a fast tokenizer, "
            f"or {setting('assistant_only', False)} to train on both"
        )
    return own


def encode_samples(
    samples: Iterable[Sample | Pair | None],
    encoder: SampleEncoder,
    bad: BadRecords,
    problem: Callable[[InvalidDocument], str] = str,
    *,
    in_pairs: bool = False,
) -> Documents:
    """One document per sample with labels; of a pair two, numbered 2n and 2n + 1.

    What cannot be encoded is a bad record; ``problem`` says what to report of the error. None
    is a record that is known to be bad.
    """
    ids, labels = encode_rendered(samples, encoder, bad, problem, 1 + in_pairs)
    return encoder.as_documents(ids, labels, bad)


def encode_rendered(
    samples: Iterable[Sample | Pair | None],
    encoder: SampleEncoder,
    bad: BadRecords,
    problem: Callable[[InvalidDocument], str] = str,
    num_each: int = 1,
) -> tuple[Encoded, Labels]:
    """The ids and labels of all samples, before special tokens are added."""
    none = Encoded.of_lists([])
    rendered = _rendered(samples, encoder, bad, problem, num_each)
    parts = [(none, none.tokens), *_encoded(rendered, encoder)]
    ids = Encoded.joined([ids for ids, _ in parts])
    return ids, np.concatenate([labels for _, labels in parts])


def _rendered(
    samples: Iterable[Sample | Pair | None],
    encoder: SampleEncoder,
    bad: BadRecords,
    problem: Callable[[InvalidDocument], str],
    num_each: int,
) -> Iterator[Rendered]:
    for number, sample in enumerate(samples):
        parts = sample if isinstance(sample, Pair) else () if sample is None else (sample,)
        try:
            yield from [encoder.render_sample(one) for one in parts] or [NOTHING] * num_each
        except InvalidDocument as error:
            bad.add(number, problem(error))
            yield from [NOTHING] * num_each


def _encoded(
    rendered: Iterable[Rendered], encoder: SampleEncoder
) -> Iterator[tuple[Encoded, Labels]]:
    """The ids and labels of about `_BATCH` characters at a time."""
    first = size = 0
    batch: list[Rendered] = []
    for one in chain(rendered, [None]):
        if one is not None:
            batch.append(one)
            size += len(one.text)
        if batch and (one is None or size >= _BATCH):
            try:
                yield encoder.encode_batch(batch)
            except TokenizerMismatch as error:  # it counts from the start of the batch
                raise TokenizerMismatch(str(error), first + error.document) from error
            first += len(batch)
            batch, size = [], 0
