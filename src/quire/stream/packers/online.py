"""``online``: the planner's online packer, which fills the window of the oldest document best."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from quire.errors import InvalidState, QuireError
from quire.plan import OnlinePacker
from quire.stream.packers.packer import PackerOptions, Window, read_tail, split_points
from quire.stream.state import (
    State,
    Tokens,
    read_counts,
    read_fields,
    tokens_from_json,
    tokens_to_json,
)


class OnlineWindowPacker:
    """Windows leave one at a time, nearly full; documents longer than a window are split."""

    def __init__(self, options: PackerOptions) -> None:
        self._options, self._tail = options, options.min_tail
        self._packer: OnlinePacker[int] = self._empty_packer()
        self._fragments: dict[int, Tokens] = {}
        """Buffered fragments in order of arrival."""
        self._continuations: set[int] = set()
        """Those that do not start a document."""
        self._unfinished: set[int] = set()
        """Those that do not end a document."""
        self._num_added = 0

    @property
    def pending(self) -> tuple[int, int, int]:
        """Documents that start and end in the buffer, and its tokens."""
        count, num_tokens = len(self._fragments), sum(map(len, self._fragments.values()))
        return count - len(self._continuations), count - len(self._unfinished), num_tokens

    def add(self, tokens: Tokens) -> list[Window]:
        """The windows that leave when a document joins the buffer."""
        length = len(tokens)
        if length > self._options.window_size:
            return self._add_split(tokens)
        key = self._num_added
        self._num_added = key + 1
        self._fragments[key] = tokens
        rows = self._packer.add(key, length)
        return [self._window(row) for row in rows] if rows else []

    def flush(self) -> list[Window]:
        """The windows of everything in the buffer."""
        return [self._window(row) for row in self._packer.flush()]

    def snapshot(self) -> Callable[[], State]:
        """The buffered fragments in order of arrival."""
        fragments, tail = self._fragments.copy(), self._tail
        continuations, unfinished = self._continuations.copy(), self._unfinished.copy()
        return lambda: {
            "tokens": tokens_to_json(list(fragments.values())),
            "opens": [int(key not in continuations) for key in fragments],
            "ends": [int(key not in unfinished) for key in fragments],
            "tail": tail,
        }

    def load_state_dict(self, state: object) -> None:
        """Take over the buffer of a state."""
        fields = read_fields("the packer", state, ("tokens", "opens", "ends", "tail"))
        fragments = tokens_from_json("the packer", fields["tokens"], self._options.vocab_size)
        opens = read_counts("the packer: opens", fields["opens"], len(fragments))
        ends = read_counts("the packer: ends", fields["ends"], len(fragments))
        tail = read_tail("the packer", fields["tail"])
        self._packer = self._empty_packer()
        try:
            self._packer.refill(range(len(fragments)), [len(tokens) for tokens in fragments])
        except QuireError as error:
            raise InvalidState(f"the packer: {error}") from error
        self._fragments = dict(enumerate(fragments))
        self._continuations = {key for key, flag in enumerate(opens) if not flag}
        self._unfinished = {key for key, flag in enumerate(ends) if not flag}
        self._num_added, self._tail = len(fragments), tail

    def _empty_packer(self) -> OnlinePacker[int]:
        options = self._options
        return OnlinePacker(
            options.window_size,
            options.buffer_size,
            max_documents_per_row=options.max_documents_per_row,
        )

    def _add_split(self, tokens: Tokens) -> list[Window]:
        windows = []
        for start, stop in pairwise(
            split_points(len(tokens), self._options.window_size, self._tail)
        ):
            if start:
                self._continuations.add(self._num_added)
            if stop < len(tokens):
                self._unfinished.add(self._num_added)
            windows += self.add(tokens[start:stop])
        return windows

    def _window(self, keys: list[int]) -> Window:
        fragments = [self._fragments.pop(key) for key in keys]
        continued = self._continuations.intersection(keys)
        unfinished = self._unfinished.intersection(keys)
        self._continuations -= continued
        self._unfinished -= unfinished
        return Window.of(fragments, len(keys) - len(continued), len(keys) - len(unfinished))
