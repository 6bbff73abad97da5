"""The encoded documents of one source, one at a time, with a state between any two."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from quire.errors import InvalidDocument, InvalidOption
from quire.stream.encode import EncodedTexts, Encoder
from quire.stream.shuffle import ShuffleWindows, Slice
from quire.stream.state import State, Tokens


@dataclass(frozen=True, slots=True)
class StreamedDocument:
    """One document of a source; it may turn out to have no token."""

    tokens: Tokens
    num_cut: int
    """Tokens that ``max_doc_tokens`` cut off."""
    problem: str | None
    """Why no text could be read from the record."""


class BadRecordBudget:
    """How many records may be left out; one more is an error, and is not passed over."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    def spend(self, problem: str) -> None:
        """Count a record that is left out."""
        if self.used >= self._limit:
            raise InvalidDocument(
                f"{problem}; that is bad record {self.used + 1} and data.max_bad_records is "
                f"{self._limit}: mend the data, or raise it to leave them out and count them"
            )
        self.used += 1


class SourceDocuments:
    """Documents in the order of the shuffle, whatever is encoded ahead."""

    def __init__(self, windows: ShuffleWindows, encoder: Encoder, budget: BadRecordBudget) -> None:
        self._windows, self._encoder, self._budget = windows, encoder, budget
        self._forget(windows.first_state(), from_start=True)

    @property
    def epoch(self) -> int:
        """How often the source was read to its end."""
        return self._slice.epoch if self._slice else int(self._state["epoch"])

    def next(self) -> StreamedDocument:
        """The next document; StopIteration when the source is over."""
        while not self._ready:
            self._next_slice()
        document = self._ready[0]
        if document.problem is not None:
            self._budget.spend(document.problem)
        self._ready.popleft()
        self._used += 1
        if len(document.tokens):
            self._fruitful_epoch = self.epoch
        return document

    def state(self) -> State:
        """The place behind the document that was given last."""
        return self._state if self._slice is None else self._slice.state_after(self._used)

    def restore(self, state: State) -> None:
        """Stand where a state was taken."""
        self._windows.restore(state)
        self._forget(state, from_start=False)

    def _forget(self, state: State, *, from_start: bool) -> None:
        self._state = state
        self._slice: Slice | None = None
        self._used = 0
        self._ready: deque[StreamedDocument] = deque()
        self._ahead: deque[tuple[Slice, Callable[[], EncodedTexts]]] = deque()
        # An epoch whose start was not seen here may have had its tokens before.
        self._fruitful_epoch = -1 if from_start else int(state["epoch"])

    def _next_slice(self) -> None:
        self._look_ahead()
        part, encoded = self._ahead[0]
        documents = encoded()
        self._refuse_an_epoch_of_nothing(part)
        self._ahead.popleft()
        self._slice, self._used = part, 0
        rows = zip(part.records, documents.split(), documents.cut.tolist(), strict=True)
        for record, tokens, num_cut in rows:
            problem = None if isinstance(record, str) else record.problem
            self._ready.append(StreamedDocument(tokens, num_cut, problem))

    def _look_ahead(self) -> None:
        while len(self._ahead) <= self._encoder.ahead:
            try:
                part = self._windows.next()
            except Exception:  # StopIteration too: first comes what was read before
                if self._ahead:
                    return
                raise
            texts = [record if isinstance(record, str) else "" for record in part.records]
            self._ahead.append((part, self._encoder.submit(texts)))

    def _refuse_an_epoch_of_nothing(self, part: Slice) -> None:
        barren = part.epoch - 1 - self._fruitful_epoch
        if part.epoch > self.epoch and barren > self._windows.share.max_barren_epochs:
            raise InvalidOption(
                f"epoch {self.epoch} of the source holds no token for {self._windows.share.name}, "
                "and data.repeat would look for one for ever; give it documents with text"
            )
