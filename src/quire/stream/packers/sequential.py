"""Windows in stream order: first in, first out, filled to the brim.

A document that does not fit goes on in the next window. No window is padded but the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from quire.errors import InvalidState
from quire.stream.state import State, Tokens, read_fields, tokens_from_json, tokens_to_json
from quire.stream.windows import Fragment, Window, window_of


class SequentialPacker:
    """A queue of tokens, cut into windows.

    >>> import numpy as np
    >>> packer = SequentialPacker(size=4, vocab_size=10)
    >>> packer.add(np.array([1, 2, 3]))
    []
    >>> [window.tokens.tolist() for window in packer.add(np.array([4, 5, 6, 7, 8]))]
    [[1, 2, 3, 4], [5, 6, 7, 8]]
    """

    def __init__(self, size: int, vocab_size: int) -> None:
        self._size, self._vocab_size = size, vocab_size
        self._fragments: deque[Fragment] = deque()
        self._total = 0

    @property
    def pending(self) -> tuple[int, int]:
        """Documents and tokens that wait."""
        return sum(fragment.opens_document for fragment in self._fragments), self._total

    def add(self, tokens: Tokens) -> list[Window]:
        """The windows that a document fills."""
        self._fragments.append(Fragment(tokens, True))
        self._total += len(tokens)
        windows = []
        while self._total >= self._size:
            windows.append(self._take())
        return windows

    def flush(self) -> list[Window]:
        """The last window, which may be short."""
        return [self._take()] if self._total else []

    def freeze(self) -> Callable[[], State]:
        """The documents that wait; only the first can be a continuation."""
        fragments = list(self._fragments)
        return lambda: {
            "tokens": tokens_to_json([fragment.tokens for fragment in fragments]),
            "continues": bool(fragments) and not fragments[0].opens_document,
        }

    def restore(self, state: object) -> None:
        """Take over what waited."""
        fields = read_fields("the sequential packer", state, ("tokens", "continues"))
        documents = tokens_from_json("the sequential packer", fields["tokens"], self._vocab_size)
        total = sum(map(len, documents))
        if total >= self._size or type(fields["continues"]) is not bool:
            raise InvalidState(
                f"the sequential packer holds {total} tokens but a window of {self._size} would "
                "have left before; use a state as get_state() gave it"
            )
        opens = [not fields["continues"], *[True] * len(documents)]
        self._fragments = deque(Fragment(*pair) for pair in zip(documents, opens, strict=False))
        self._total = total

    def _take(self) -> Window:
        space = min(self._size, self._total)
        self._total -= space
        taken = []
        while space:
            fragment = self._fragments.popleft()
            if len(fragment.tokens) > space:
                self._fragments.appendleft(Fragment(fragment.tokens[space:], False))
                fragment = Fragment(fragment.tokens[:space], fragment.opens_document)
            taken.append(fragment)
            space -= len(fragment.tokens)
        return window_of(taken)
