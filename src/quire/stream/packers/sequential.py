"""Windows in stream order: first in, first out, filled to the brim.

A document that does not fit goes on in the next window. No window is padded but the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from quire.errors import InvalidState
from quire.stream.state import State, Tokens, read_fields, tokens_from_json, tokens_to_json
from quire.stream.windows import Window, window_of


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
        self._waiting: deque[Tokens] = deque()
        self._continues = False
        """Whether the first that waits is the rest of a document."""
        self._total = 0

    @property
    def pending(self) -> tuple[int, int]:
        """Documents and tokens that wait."""
        return len(self._waiting) - self._continues, self._total

    def add(self, tokens: Tokens) -> list[Window]:
        """The windows that a document fills."""
        self._waiting.append(tokens)
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
        documents, continues = list(self._waiting), self._continues
        return lambda: {"tokens": tokens_to_json(documents), "continues": continues}

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
        self._waiting, self._total = deque(documents), total
        self._continues = fields["continues"] and total > 0

    def _take(self) -> Window:
        space = min(self._size, self._total)
        self._total -= space
        taken, continued = [], self._continues
        self._continues = False
        while space:
            tokens = self._waiting.popleft()
            if len(tokens) > space:
                self._waiting.appendleft(tokens[space:])
                self._continues = True
                tokens = tokens[:space]
            taken.append(tokens)
            space -= len(tokens)
        return window_of(taken, num_documents=len(taken) - continued)
