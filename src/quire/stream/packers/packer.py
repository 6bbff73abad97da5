"""What every packer takes, returns and saves: documents in, windows out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from quire.errors import InvalidState
from quire.stream.state import (
    State,
    Tokens,
    read_count,
    read_counts,
    read_fields,
    tokens_from_json,
    tokens_to_json,
)


class Window(NamedTuple):
    """Fragments end to end, at most ``max_length + 1`` tokens; the rest of the row is padding."""

    tokens: Tokens
    lengths: tuple[int, ...]
    """Tokens of each fragment."""
    num_documents: int
    """Documents that start in this window."""
    num_ends: int
    """Documents that end in this window."""

    @classmethod
    def of(cls, fragments: Sequence[Tokens], num_documents: int, num_ends: int) -> Window:
        """The window of these fragments; the counts are those that start and end a document."""
        return cls(np.concatenate(fragments), tuple(map(len, fragments)), num_documents, num_ends)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackerOptions:
    """What packers need to know; each uses what concerns it."""

    window_size: int
    vocab_size: int
    buffer_size: int = 128
    max_documents_per_row: int | None = None
    min_tail: int = 1
    """The fewest tokens of a document's last fragment.

    It is 2 where documents end with EOS: an EOS alone in a fragment is never learned, as no token
    precedes it. Wrapped windows are the exception; they are cut wherever they are full.
    """


class Packer(Protocol):
    """Packs documents into windows; every token of a document leaves exactly once."""

    @property
    def pending(self) -> tuple[int, int, int]:
        """Documents that have not started and not ended to leave, and tokens that have not left."""

    def add(self, tokens: Tokens) -> list[Window]:
        """Add a document of at least one token, and return the windows that are complete."""

    def flush(self) -> list[Window]:
        """The windows of everything that is buffered."""

    def snapshot(self) -> Callable[[], State]:
        """A cheap function that returns the state of this moment in JSON when it is called."""

    def load_state_dict(self, state: object) -> None:
        """Continue exactly from a state."""


def split_points(length: int, size: int, min_tail: int) -> list[int]:
    """Where the fragments of a document that is longer than a window start and stop.

    The rule is that of ``overlong="split"`` in `quire.plan`, which splits whole corpora at once.

    >>> split_points(20, 9, min_tail=2), split_points(19, 9, min_tail=2)
    ([0, 9, 18, 20], [0, 9, 17, 19])
    """
    points = [*range(0, length, size), length]
    if len(points) > 2:
        points[-2] = min(points[-2], length - min_tail)
    return points


def read_tail(what: str, plain: object) -> int:
    """The ``min_tail`` of a state; states of version 1 continue with 1."""
    tail = read_count(f"{what}: tail", plain, most=2)
    if not tail:
        raise InvalidState(f"{what}: tail is 0 but a fragment has at least 1 token")
    return tail


def windows_to_json(windows: Sequence[Window]) -> State:
    """The windows as part of a state."""
    return {
        "tokens": tokens_to_json([window.tokens for window in windows]),
        "lengths": [list(window.lengths) for window in windows],
        "documents": [window.num_documents for window in windows],
        "ends": [window.num_ends for window in windows],
    }


def windows_from_json(plain: object, size: int, vocab_size: int) -> list[Window]:
    """The windows that `windows_to_json` wrote."""
    fields = read_fields("the windows", plain, ("tokens", "lengths", "documents", "ends"))
    rows = tokens_from_json("the windows", fields["tokens"], vocab_size)
    documents = read_counts("the windows: documents", fields["documents"], len(rows))
    ends = read_counts("the windows: ends", fields["ends"], len(rows))
    if not isinstance(fields["lengths"], list) or len(fields["lengths"]) != len(rows):
        raise InvalidState(f"the windows' lengths must be a list of {len(rows)}")
    windows = []
    for tokens, lengths, *counts in zip(rows, fields["lengths"], documents, ends, strict=True):
        parts = read_counts("the lengths of a window", lengths)
        is_whole = sum(parts) == len(tokens) <= size and 0 not in parts
        if not is_whole or max(counts) > len(parts):
            raise InvalidState(
                f"a window has {len(tokens)} tokens in fragments of {parts}, of which {counts[0]} "
                f"start and {counts[1]} end a document, but it holds at most {size} tokens and "
                "each fragment at least 1"
            )
        windows.append(Window(tokens, tuple(parts), *counts))
    return windows
