"""The planner's online packer: the oldest document, and what fills its window best."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from quire.errors import InvalidState, QuireError
from quire.plan import OnlinePacker
from quire.stream.packers.tails import cuts, read_tail
from quire.stream.state import (
    State,
    Tokens,
    read_counts,
    read_fields,
    tokens_from_json,
    tokens_to_json,
)
from quire.stream.windows import Window, window_of


class OnlineBinPacker:
    """Windows leave one at a time, nearly full; documents longer than a window are split."""

    def __init__(
        self,
        size: int,
        vocab_size: int,
        buffer_docs: int,
        max_docs: int | None = None,
        tail: int = 1,
    ) -> None:
        self._size, self._vocab_size, self._tail = size, vocab_size, tail
        self._buffer_docs, self._max_docs = buffer_docs, max_docs
        self._packer: OnlinePacker[int] = self._empty_packer()
        self._waiting: dict[int, Tokens] = {}
        """Fragments by the order in which they came."""
        self._continuations: set[int] = set()
        """Those of them that do not open a document."""
        self._num_added = 0

    @property
    def pending(self) -> tuple[int, int]:
        """Documents and tokens that wait."""
        num_documents = len(self._waiting) - len(self._continuations)
        return num_documents, sum(map(len, self._waiting.values()))

    def add(self, tokens: Tokens) -> list[Window]:
        """The windows that leave as a document joins those that wait."""
        length = len(tokens)
        if length > self._size:
            return self._add_parts(tokens)
        key = self._num_added
        self._num_added = key + 1
        self._waiting[key] = tokens
        rows = self._packer.add(key, length)
        return [self._window(row) for row in rows] if rows else []

    def flush(self) -> list[Window]:
        """Windows of everything that waits."""
        return [self._window(row) for row in self._packer.flush()]

    def freeze(self) -> Callable[[], State]:
        """The fragments that wait, in the order in which they came."""
        fragments, tail = list(self._waiting.values()), self._tail
        opens = [int(key not in self._continuations) for key in self._waiting]
        return lambda: {"tokens": tokens_to_json(fragments), "opens": opens, "tail": tail}

    def restore(self, state: object) -> None:
        """Take over what waited."""
        fields = read_fields("the online packer", state, ("tokens", "opens", "tail"))
        pieces = tokens_from_json("the online packer", fields["tokens"], self._vocab_size)
        opens = read_counts("the online packer: opens", fields["opens"], len(pieces))
        tail = read_tail("the online packer", fields["tail"])
        self._packer = self._empty_packer()
        try:
            self._packer.refill(range(len(pieces)), [len(piece) for piece in pieces])
        except QuireError as error:
            raise InvalidState(f"the online packer: {error}") from error
        self._waiting = dict(enumerate(pieces))
        self._continuations = {key for key, flag in enumerate(opens) if not flag}
        self._num_added, self._tail = len(pieces), tail

    def _empty_packer(self) -> OnlinePacker[int]:
        return OnlinePacker(self._size, self._buffer_docs, max_documents_per_row=self._max_docs)

    def _add_parts(self, tokens: Tokens) -> list[Window]:
        windows = []
        for start, stop in pairwise(cuts(len(tokens), self._size, self._tail)):
            if start:
                self._continuations.add(self._num_added)
            windows += self.add(tokens[start:stop])
        return windows

    def _window(self, keys: list[int]) -> Window:
        tokens = [self._waiting.pop(key) for key in keys]
        continued = self._continuations.intersection(keys)
        self._continuations -= continued
        return window_of(tokens, num_documents=len(keys) - len(continued))
