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
from quire.stream.windows import Fragment, Window, window_of


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
        self._fragments: dict[int, Fragment] = {}
        self._num_added = 0

    @property
    def pending(self) -> tuple[int, int]:
        """Documents and tokens that wait."""
        waiting = self._fragments.values()
        return sum(f.opens_document for f in waiting), sum(len(f.tokens) for f in waiting)

    def add(self, tokens: Tokens) -> list[Window]:
        """The windows that leave as a document joins those that wait."""
        windows = []
        for start, stop in pairwise(cuts(len(tokens), self._size, self._tail)):
            fragment = Fragment(tokens[start:stop], start == 0)
            self._fragments[self._num_added] = fragment
            rows = self._packer.add(self._num_added, len(fragment.tokens))
            self._num_added += 1
            windows += [self._window(row) for row in rows]
        return windows

    def flush(self) -> list[Window]:
        """Windows of everything that waits."""
        return [self._window(row) for row in self._packer.flush()]

    def freeze(self) -> Callable[[], State]:
        """The fragments that wait, in the order in which they came."""
        fragments, tail = list(self._fragments.values()), self._tail
        return lambda: {
            "tokens": tokens_to_json([fragment.tokens for fragment in fragments]),
            "opens": [int(fragment.opens_document) for fragment in fragments],
            "tail": tail,
        }

    def restore(self, state: object) -> None:
        """Take over what waited."""
        fields = read_fields("the online packer", state, ("tokens", "opens", "tail"))
        pieces = tokens_from_json("the online packer", fields["tokens"], self._vocab_size)
        opens = read_counts("the online packer: opens", fields["opens"], len(pieces))
        tail = read_tail("the online packer", fields["tail"])
        plain = {
            **self._empty_packer().state(),
            "keys": list(range(len(pieces))),
            "spaces": [len(piece) for piece in pieces],
        }
        try:
            self._packer = OnlinePacker.from_state(plain)  # type: ignore[assignment]
        except QuireError as error:
            raise InvalidState(f"the online packer: {error}") from error
        pairs = zip(pieces, opens, strict=True)
        self._fragments = {n: Fragment(piece, flag > 0) for n, (piece, flag) in enumerate(pairs)}
        self._num_added, self._tail = len(pieces), tail

    def _empty_packer(self) -> OnlinePacker[int]:
        return OnlinePacker(self._size, self._buffer_docs, max_documents_per_row=self._max_docs)

    def _window(self, keys: list[int]) -> Window:
        return window_of([self._fragments.pop(key) for key in keys])
