"""Encoded documents one at a time: of one source, or of a mixture of several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from quire.errors import InvalidOption, InvalidState
from quire.formats.bad_records import BadRecordBudget
from quire.stream.encode import EncodedTexts, Encoder
from quire.stream.shuffle import ShuffleWindows, Slice
from quire.stream.state import State, Tokens, read_counts, read_fields


@dataclass(frozen=True, slots=True)
class StreamedDocument:
    """One document of a source, possibly without tokens."""

    tokens: Tokens
    num_cut: int
    """Tokens that were dropped from its end, or all of them if it is too long."""
    problem: str | None
    """Why the record has no readable text."""


class SourceDocuments:
    """The documents of one source in shuffled order, encoded ahead."""

    def __init__(self, windows: ShuffleWindows, encoder: Encoder, budget: BadRecordBudget) -> None:
        self._windows, self._encoder, self._budget = windows, encoder, budget
        self._reset(windows.state_dict(), from_start=True)

    @property
    def epoch(self) -> int:
        """How many times the source was read to its end."""
        return self._slice.epoch if self._slice else int(self._state["epoch"])

    def next(self) -> StreamedDocument:
        """The next document; StopIteration at the end of the source."""
        while not self._ready:
            self._next_slice()
        document = self._ready[0]
        if document.problem is not None:
            self._budget.spend(document.problem)
        self._ready.popleft()
        self._used += 1
        if len(document.tokens):
            self._last_epoch_with_tokens = self.epoch
        return document

    def state_dict(self) -> State:
        """The position after the last document."""
        return self._state if self._slice is None else self._slice.state_after(self._used)

    def load_state_dict(self, state: State) -> None:
        """Continue from a position."""
        self._windows.load_state_dict(state)
        self._reset(state, from_start=False)

    def _reset(self, state: State, *, from_start: bool) -> None:
        self._state = state
        self._slice: Slice | None = None
        self._used = 0
        self._ready: deque[StreamedDocument] = deque()
        self._ahead: deque[tuple[Slice, Callable[[], EncodedTexts]]] = deque()
        # An epoch that did not start here may have had its tokens before.
        self._last_epoch_with_tokens = -1 if from_start else int(state["epoch"])

    def _next_slice(self) -> None:
        self._encode_ahead()
        part, encoded = self._ahead[0]
        documents = encoded()
        self._require_tokens_in_epoch(part)
        self._ahead.popleft()
        self._slice, self._used = part, 0
        rows = zip(part.records, documents.split(), documents.num_cut.tolist(), strict=True)
        for record, tokens, num_cut in rows:
            problem = None if isinstance(record, str) else record.problem
            self._ready.append(StreamedDocument(tokens, num_cut, problem))

    def _encode_ahead(self) -> None:
        while len(self._ahead) <= self._encoder.num_ahead:
            try:
                part = self._windows.next()
            except Exception:  # also StopIteration: what was read before comes first
                if self._ahead:
                    return
                raise
            texts = [record if isinstance(record, str) else "" for record in part.records]
            self._ahead.append((part, self._encoder.submit(texts)))

    def _require_tokens_in_epoch(self, part: Slice) -> None:
        share = self._windows.share
        num_empty = part.epoch - 1 - self._last_epoch_with_tokens
        if part.epoch > self.epoch and num_empty > share.max_empty_epochs:
            raise InvalidOption(
                f"epoch {self.epoch} of the source has no token for {share.description}, and "
                f"{share.options.name('repeat')} would search forever; give it documents with text"
            )


class Mixture:
    """Several sources as one: the next document is of the source furthest behind its share.

    Among equals the first is taken. When a source ends, the others continue.
    """

    def __init__(self, sources: Sequence[SourceDocuments], weights: Sequence[float]) -> None:
        self._sources = list(sources)
        self._costs = _integer_costs(weights)
        self._taken = [0] * len(sources)
        self._live = list(range(len(sources)))

    @property
    def epoch(self) -> int:
        """The smallest epoch of all sources."""
        return min(source.epoch for source in self._sources)

    def next(self) -> StreamedDocument:
        """The next document; StopIteration when all sources have ended."""
        while self._live:
            number = min(self._live, key=lambda number: self._taken[number] * self._costs[number])
            try:
                document = self._sources[number].next()
            except StopIteration:
                self._live.remove(number)
                continue
            self._taken[number] += len(document.tokens)
            return document
        raise StopIteration

    def state_dict(self) -> State:
        """The positions in all sources, and the tokens taken from each."""
        return {
            "sources": [source.state_dict() for source in self._sources],
            "taken": list(self._taken),
        }

    def load_state_dict(self, state: object) -> None:
        """Continue from a state."""
        fields = read_fields("the mixture", state, ("sources", "taken"))
        count = len(self._sources)
        self._taken = read_counts("the mixture: taken", fields["taken"], count)
        positions = fields["sources"]
        if not isinstance(positions, list) or len(positions) != count:
            raise InvalidState(f"the mixture's sources must be a list of {count}")
        for source, position in zip(self._sources, positions, strict=True):
            source.load_state_dict(position)
        self._live = list(range(count))


def _integer_costs(weights: Sequence[float]) -> list[int]:
    """Integers in proportion to 1 / weight, so that comparisons are exact on every machine.

    >>> _integer_costs([0.5, 0.3, 0.2])
    [6, 10, 15]
    """
    costs = [1 / Fraction(repr(float(weight))) for weight in weights]
    common = lcm(*(cost.denominator for cost in costs))
    return [int(cost * common) for cost in costs]
