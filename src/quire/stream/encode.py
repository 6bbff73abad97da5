"""Texts to documents with their special tokens, a slice at a time, here or in worker processes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from quire.errors import WorkerError
from quire.options import LARGEST
from quire.stream.options import StreamOptions
from quire.stream.records import BadRecord, Record
from quire.stream.state import Tokens
from quire.text import Tokenizer
from quire.text.encode import encode_contents

_MAX_DEATHS = 3
"""Worker processes that may die over one slice of texts before it is an error."""
_PATIENCE = 5.0
"""Seconds to wait for a result before checking whether the pool is broken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedTexts:
    """Documents end to end; those without tokens have length 0 and no specials."""

    tokens: Tokens
    lengths: npt.NDArray[np.int64]
    num_cut: npt.NDArray[np.int64]
    """Tokens that were dropped: the end of a truncated document, or all of one that is too long."""
    problems: Mapping[int, str] = field(default_factory=dict)
    """What is wrong with texts that could not be encoded, by their numbers."""
    silent: npt.NDArray[np.bool_] | None = None
    """Which documents were dropped because no token of them is trained; None: not any."""

    def reason_of(self, number: int) -> str:
        """Why a document without tokens was dropped, unless its record is bad."""
        if self.silent is not None and self.silent[number]:
            return "unsupervised"
        return "too_long" if self.num_cut[number] else "empty"

    def split(self) -> list[Tokens]:
        """One array per document."""
        ends = np.cumsum(self.lengths).tolist()
        return [self.tokens[a:b] for a, b in zip([0, *ends], ends, strict=False)]


Coder: TypeAlias = Callable[[Sequence[Any]], EncodedTexts]
"""Encodes the records of one source; None is a bad record."""


def encode(texts: Sequence[str], tokenizer: Tokenizer, options: StreamOptions) -> EncodedTexts:
    """The documents of the texts; each depends only on its own text.

    >>> from quire.text import ByteTokenizer
    >>> options = StreamOptions(max_length=8, batch_size=1, add_bos=True, truncate_to=2)
    >>> options = options.with_tokenizer(ByteTokenizer())
    >>> done = encode(["abc", "", "d"], ByteTokenizer(), options)
    >>> done.tokens.tolist(), done.lengths.tolist(), done.num_cut.tolist()
    ([1, 100, 101, 2, 1, 103, 2], [4, 0, 3], [1, 0, 0])
    """
    problems: dict[int, str] = {}
    contents = encode_contents(texts, tokenizer, options, problems)
    tokens, lengths = contents.tokens, contents.lengths
    return as_documents(tokens, lengths, options, bos=options.bos, problems=problems)


def as_documents(
    tokens: Tokens,
    whole: npt.NDArray[np.int64],
    options: StreamOptions,
    *,
    bos: int | None,
    problems: Mapping[int, str],
    silent: npt.NDArray[np.bool_] | None = None,
) -> EncodedTexts:
    """The documents of contents end to end, of these lengths; the ``silent`` ones are dropped."""
    eos = options.eos
    most, limit = (
        min(n or LARGEST, LARGEST) for n in (options.truncate_to, options.drop_longer_than)
    )
    is_dropped = whole > limit - (bos is not None)
    if silent is not None:
        is_dropped |= silent
    kept = np.where(is_dropped, 0, np.minimum(whole, most))
    num_cut = whole - kept
    tokens = tokens[_leading(whole, kept)] if num_cut.any() else tokens
    num_specials = (bos is not None) + (eos is not None)
    lengths = np.where(kept > 0, kept + num_specials, 0)
    flat = _with_specials(tokens, lengths, bos, eos) if num_specials else tokens
    return EncodedTexts(
        tokens=flat, lengths=lengths, num_cut=num_cut, problems=problems, silent=silent
    )


def _leading(lengths: npt.NDArray[np.int64], kept: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which tokens of the texts end to end are among the first ``kept`` of their text."""
    starts = np.cumsum(lengths) - lengths
    leads: npt.NDArray[np.bool_] = np.arange(int(lengths.sum())) < (starts + kept).repeat(lengths)
    return leads


def _with_specials(
    tokens: Tokens, lengths: npt.NDArray[np.int64], bos: int | None, eos: int | None
) -> Tokens:
    ends = np.cumsum(lengths)[lengths > 0]
    starts = ends - lengths[lengths > 0]
    flat = np.empty(int(lengths.sum()), np.int32)
    is_content = np.ones(len(flat), np.bool_)
    for token, positions in ((bos, starts), (eos, ends - 1)):
        if token is not None:
            flat[positions] = token
            is_content[positions] = False
    flat[is_content] = tokens
    return flat


class SourceCoder(Protocol):
    """What encodes the records of one source that are not texts; worker processes receive it."""

    def open(self) -> Coder:
        """The function that encodes them."""


def _coders(
    tokenizer: Tokenizer | None, options: StreamOptions, answers: Sequence[SourceCoder | None]
) -> list[Coder]:
    """The functions that encode the records of each source."""

    def encode_texts(records: Sequence[Any]) -> EncodedTexts:
        texts = [one if isinstance(one, str) else "" for one in records]
        return encode(texts, cast(Tokenizer, tokenizer), options)

    return [encode_texts if one is None else one.open() for one in answers]


class Encoder(Protocol):
    """Encodes slices of records, immediately or ahead."""

    num_ahead: int
    """Slices that may be in progress besides the current one."""

    def submit(self, records: Sequence[Record], source: int = 0) -> Callable[[], EncodedTexts]:
        """A function that returns the documents of a source's records when they are needed."""

    def close(self) -> None:
        """End all worker processes."""


class InlineEncoder:
    """Encodes when the documents are needed."""

    num_ahead = 0

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        options: StreamOptions,
        answers: Sequence[SourceCoder | None] = (None,),
    ) -> None:
        self._coders = _coders(tokenizer, options, answers)

    def submit(self, records: Sequence[Record], source: int = 0) -> Callable[[], EncodedTexts]:
        """A function that encodes when it is called."""
        return lambda: self._coders[source](_samples(records))

    def close(self) -> None:
        """Do nothing: there are no processes."""


class ProcessEncoder:
    """Encodes ahead in worker processes, with the same results.

    A process that dies breaks its pool. Then a new pool starts, and the texts whose documents had
    not come back are encoded again: each depends only on its own text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        options: StreamOptions,
        answers: Sequence[SourceCoder | None] = (None,),
    ) -> None:
        self.num_ahead = 2 * options.num_workers
        self._options, self._arguments = options, (tokenizer, options, answers)
        self._pool = self._new_pool()

    def submit(self, records: Sequence[Record], source: int = 0) -> Callable[[], EncodedTexts]:
        """Start encoding at once."""
        kept = _samples(records), source
        pool, future = self._begin(*kept)
        return lambda: self._result(pool, future, kept)

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _new_pool(self) -> ProcessPoolExecutor:
        pool = ProcessPoolExecutor(
            self._options.num_workers,
            get_context("spawn"),
            initializer=_prepare,
            initargs=self._arguments,
        )
        # All processes start with the first texts. One that starts while the pool breaks over
        # another is never ended in Python 3.11, and leaving the program would wait for it forever.
        pool._safe_to_dynamically_spawn_children = False  # type: ignore[attr-defined]
        return pool

    def _begin(
        self, records: list[Any], source: int
    ) -> tuple[ProcessPoolExecutor, Future[EncodedTexts]]:
        try:
            return self._pool, self._pool.submit(_encode_here, records, source)
        except BrokenProcessPool:
            self._pool.shutdown(wait=False)
            self._pool = self._new_pool()
            return self._pool, self._pool.submit(_encode_here, records, source)

    def _result(
        self,
        pool: ProcessPoolExecutor,
        future: Future[EncodedTexts],
        task: tuple[list[Any], int],
    ) -> EncodedTexts:
        for attempt in range(_MAX_DEATHS):
            if attempt:
                pool, future = self._begin(*task)
            try:
                return _awaited(pool, future)
            except BrokenProcessPool as error:
                death = error
        raise WorkerError(
            f"worker processes died {_MAX_DEATHS} times while tokenizing the same {len(task[0])} "
            "documents (killed, out of memory, or a script that opens a stream outside of "
            "`if __name__ == '__main__':`); no document was lost: continue from the last state, "
            f"with fewer {self._options.name('num_workers')} or with 0"
        ) from death


def _awaited(pool: ProcessPoolExecutor, future: Future[EncodedTexts]) -> EncodedTexts:
    """The result of a future; one that was submitted while its pool broke may never be done."""
    while True:
        try:
            return future.result(_PATIENCE)
        except TimeoutError:
            if future.done():  # raised by the tokenizer
                raise
            pool.submit(_nothing)  # raises if the pool is broken


def _nothing() -> None:
    """A task that checks whether the pool still takes any."""


_here: list[Coder]


def _prepare(
    tokenizer: Tokenizer | None, options: StreamOptions, answers: Sequence[SourceCoder | None]
) -> None:
    global _here  # noqa: PLW0603 - a worker process has one tokenizer
    _here = _coders(tokenizer, options, answers)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process with its parent, which cannot do that itself when it is killed."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode_here(records: list[Any], source: int) -> EncodedTexts:
    return _here[source](records)


def _samples(records: Sequence[Record]) -> list[Any]:
    """The texts or samples; None is a bad record."""
    return [None if isinstance(record, BadRecord) else record for record in records]


def make_encoder(
    tokenizer: Tokenizer | None,
    options: StreamOptions,
    answers: Sequence[SourceCoder | None] = (None,),
) -> Encoder:
    """The encoder for this number of worker processes.

    ``answers`` are the sources, by number; None is one of texts, which needs the tokenizer.
    """
    kind = ProcessEncoder if options.num_workers else InlineEncoder
    return kind(tokenizer, options, answers)
