"""``wrapped``: windows in stream order, filled completely.

A document that does not fit continues in the next window; only the last window is padded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from quire.errors import InvalidState
from quire.stream.packers.packer import PackerOptions, Window
from quire.stream.state import State, Tokens, read_fields, tokens_from_json, tokens_to_json


class WrappedPacker:
    """A queue of tokens that is cut into windows.

    >>> import numpy as np
    >>> packer = WrappedPacker(PackerOptions(window_size=4, vocab_size=10))
    >>> packer.add(np.array([1, 2, 3]))
    []
    >>> [window.tokens.tolist() for window in packer.add(np.array([4, 5, 6, 7, 8]))]
    [[1, 2, 3, 4], [5, 6, 7, 8]]
    """

    def __init__(self, options: PackerOptions) -> None:
        self._size, self._vocab_size = options.window_size, options.vocab_size
        self._documents: deque[Tokens] = deque()
        self._continues = False
        """Whether the first buffered document is the rest of one."""
        self._num_tokens = 0

    @property
    def pending(self) -> tuple[int, int, int]:
        """Documents that start and end in the buffer, and its tokens."""
        num_ends = len(self._documents)
        return num_ends - self._continues, num_ends, self._num_tokens

    def add(self, tokens: Tokens) -> list[Window]:
        """The windows that a document completes."""
        self._documents.append(tokens)
        self._num_tokens += len(tokens)
        windows = []
        while self._num_tokens >= self._size:
            windows.append(self._take())
        return windows

    def flush(self) -> list[Window]:
        """The last window, which may be short."""
        return [self._take()] if self._num_tokens else []

    def snapshot(self) -> Callable[[], State]:
        """The buffered documents; only the first can be a continuation."""
        documents, continues = list(self._documents), self._continues
        return lambda: {"tokens": tokens_to_json(documents), "continues": continues}

    def load_state_dict(self, state: object) -> None:
        """Take over the buffer of a state."""
        fields = read_fields("the packer", state, ("tokens", "continues"))
        documents = tokens_from_json("the packer", fields["tokens"], self._vocab_size)
        num_tokens = sum(map(len, documents))
        if num_tokens >= self._size or type(fields["continues"]) is not bool:
            raise InvalidState(
                f"the packer holds {num_tokens} tokens but emits a window at {self._size}; use a "
                "state exactly as it was saved"
            )
        self._documents, self._num_tokens = deque(documents), num_tokens
        self._continues = fields["continues"] and num_tokens > 0

    def _take(self) -> Window:
        space = min(self._size, self._num_tokens)
        self._num_tokens -= space
        fragments, continued = [], self._continues
        self._continues = False
        while space:
            tokens = self._documents.popleft()
            if len(tokens) > space:
                self._documents.appendleft(tokens[space:])
                self._continues = True
                tokens = tokens[:space]
            fragments.append(tokens)
            space -= len(tokens)
        count = len(fragments)
        return Window.of(
            fragments, num_documents=count - continued, num_ends=count - self._continues
        )
