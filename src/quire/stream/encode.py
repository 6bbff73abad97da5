"""Texts to documents: tokens with their specials, a slice at a time, here or in processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from typing import Protocol

import numpy as np
import numpy.typing as npt

from quire.errors import WorkerError
from quire.stream.state import Tokens
from quire.text import EncodeOptions, Tokenizer
from quire.text.encode import encode_contents

_AS_THEY_ARE = EncodeOptions(add_bos=False, add_eos=False)
_MAX_DEATHS = 3
"""Worker processes that may die over one slice of texts before it is an error."""
_PATIENCE = 5.0
"""Seconds after which a pool that gives nothing is asked whether it is broken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What is done to the tokens of a text."""

    bos: int | None = None
    eos: int | None = None
    max_doc_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedTexts:
    """Documents end to end; one without any token has length 0 and no specials."""

    tokens: Tokens
    lengths: npt.NDArray[np.int64]
    cut: npt.NDArray[np.int64]
    """Tokens that ``max_doc_tokens`` cut off each."""

    def split(self) -> list[Tokens]:
        """One array a document."""
        ends = np.cumsum(self.lengths).tolist()
        return [self.tokens[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def encode(texts: Sequence[str], tokenizer: Tokenizer, terms: Terms) -> EncodedTexts:
    """The documents of the texts; each depends on its own text alone.

    >>> from quire.text import ByteTokenizer
    >>> done = encode(["abc", "", "d"], ByteTokenizer(), Terms(bos=1, eos=2, max_doc_tokens=2))
    >>> done.tokens.tolist(), done.lengths.tolist(), done.cut.tolist()
    ([1, 100, 101, 2, 1, 103, 2], [4, 0, 3], [1, 0, 0])
    """
    contents = encode_contents(texts, tokenizer, _AS_THEY_ARE)
    kept, tokens = contents.lengths, contents.tokens
    if terms.max_doc_tokens is not None and terms.max_doc_tokens < kept.max(initial=0):
        kept = np.minimum(kept, terms.max_doc_tokens)
        tokens = tokens[_first_places(contents.lengths, kept)]
    extra = (terms.bos is not None) + (terms.eos is not None)
    lengths = np.where(kept > 0, kept + extra, 0)
    flat = _with_specials(tokens, lengths, terms) if extra else tokens
    return EncodedTexts(tokens=flat, lengths=lengths, cut=contents.lengths - kept)


def _first_places(
    lengths: npt.NDArray[np.int64], kept: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Which places of the texts end to end are among the first ``kept`` of their text."""
    starts = np.cumsum(lengths) - lengths
    places: npt.NDArray[np.bool_] = np.arange(int(lengths.sum())) < (starts + kept).repeat(lengths)
    return places


def _with_specials(tokens: Tokens, lengths: npt.NDArray[np.int64], terms: Terms) -> Tokens:
    ends = np.cumsum(lengths)[lengths > 0]
    starts = ends - lengths[lengths > 0]
    flat = np.empty(int(lengths.sum()), np.int32)
    is_content = np.ones(len(flat), np.bool_)
    for token, places in ((terms.bos, starts), (terms.eos, ends - 1)):
        if token is not None:
            flat[places] = token
            is_content[places] = False
    flat[is_content] = tokens
    return flat


class Encoder(Protocol):
    """Encodes slices of texts, now or ahead."""

    ahead: int
    """Slices that may be under way beside the one that is used."""

    def submit(self, texts: Sequence[str]) -> Callable[[], EncodedTexts]:
        """A function that gives the documents when they are needed."""

    def close(self) -> None:
        """End what runs."""


class InlineEncoder:
    """Encodes when the documents are needed."""

    ahead = 0

    def __init__(self, tokenizer: Tokenizer, terms: Terms) -> None:
        self._tokenizer, self._terms = tokenizer, terms

    def submit(self, texts: Sequence[str]) -> Callable[[], EncodedTexts]:
        """Nothing happens before the call."""
        return lambda: encode(texts, self._tokenizer, self._terms)

    def close(self) -> None:
        """Nothing runs."""


class ProcessEncoder:
    """Encodes ahead in processes of its own; the documents come out the same.

    A process that dies takes its pool with it. Then there is a new pool, and the texts whose
    documents had not come back are encoded again: each depends on its own text alone.
    """

    def __init__(self, tokenizer: Tokenizer, terms: Terms, num_workers: int) -> None:
        self.ahead = 2 * num_workers
        self._num_workers, self._arguments = num_workers, (tokenizer, terms)
        self._pool = self._new_pool()

    def submit(self, texts: Sequence[str]) -> Callable[[], EncodedTexts]:
        """A process begins at once."""
        kept = list(texts)
        pool, future = self._begin(kept)
        return lambda: self._result(pool, future, kept)

    def close(self) -> None:
        """Ends the processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _new_pool(self) -> ProcessPoolExecutor:
        pool = ProcessPoolExecutor(
            self._num_workers,
            get_context("spawn"),
            initializer=_prepare,
            initargs=self._arguments,
        )
        # All processes start with the first texts. One that starts while the pool breaks over
        # another is never ended in Python 3.11, and whoever leaves waits for it for ever.
        pool._safe_to_dynamically_spawn_children = False  # type: ignore[attr-defined]
        return pool

    def _begin(self, texts: list[str]) -> tuple[ProcessPoolExecutor, Future[EncodedTexts]]:
        try:
            return self._pool, self._pool.submit(_encode_here, texts)
        except BrokenProcessPool:
            self._pool.shutdown(wait=False)
            self._pool = self._new_pool()
            return self._pool, self._pool.submit(_encode_here, texts)

    def _result(
        self, pool: ProcessPoolExecutor, future: Future[EncodedTexts], texts: list[str]
    ) -> EncodedTexts:
        for attempt in range(_MAX_DEATHS):
            if attempt:
                pool, future = self._begin(texts)
            try:
                return _awaited(pool, future)
            except BrokenProcessPool as error:
                death = error
        raise WorkerError(
            f"worker processes died {_MAX_DEATHS} times while they tokenised the same "
            f"{len(texts)} documents (killed, out of memory, or a script that opens a stream "
            "outside of `if __name__ == '__main__':`); no document was lost: go on from the last "
            "state, with fewer data.num_workers or with 0"
        ) from death


def _awaited(pool: ProcessPoolExecutor, future: Future[EncodedTexts]) -> EncodedTexts:
    """What the future gives; texts that came in while their pool broke would be waited for."""
    while True:
        try:
            return future.result(_PATIENCE)
        except TimeoutError:
            if future.done():  # the tokenizer's own
                raise
            pool.submit(_nothing)  # raises if the pool is broken


def _nothing() -> None:
    """For a pool to do."""


_here: tuple[Tokenizer, Terms]


def _prepare(tokenizer: Tokenizer, terms: Terms) -> None:
    global _here  # noqa: PLW0603 - a worker process has one tokenizer
    _here = tokenizer, terms
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot end its workers, so they watch for it."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode_here(texts: list[str]) -> EncodedTexts:
    return encode(texts, *_here)


def make_encoder(tokenizer: Tokenizer, terms: Terms, num_workers: int) -> Encoder:
    """An encoder with so many processes."""
    if num_workers:
        return ProcessEncoder(tokenizer, terms, num_workers)
    return InlineEncoder(tokenizer, terms)
