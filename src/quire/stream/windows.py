"""Windows: rows of ``seq_len + 1`` tokens, before they become a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from quire.errors import InvalidState
from quire.stream.state import (
    State,
    Tokens,
    read_counts,
    read_fields,
    tokens_from_json,
    tokens_to_json,
)


class Window(NamedTuple):
    """Fragments end to end; at most ``seq_len + 1`` tokens, the rest of the row is padding."""

    tokens: Tokens
    lengths: tuple[int, ...]
    """Tokens of each fragment."""
    num_documents: int
    """Documents that open in this window."""


def window_of(fragments: Sequence[Tokens], num_documents: int) -> Window:
    """The window that holds these fragments, of which so many open a document."""
    return Window(np.concatenate(fragments), tuple(map(len, fragments)), num_documents)


def windows_to_json(windows: Sequence[Window]) -> State:
    """The windows, for a state."""
    return {
        "tokens": tokens_to_json([window.tokens for window in windows]),
        "lengths": [list(window.lengths) for window in windows],
        "documents": [window.num_documents for window in windows],
    }


def windows_from_json(plain: object, size: int, vocab_size: int) -> list[Window]:
    """The windows that `windows_to_json` wrote."""
    fields = read_fields("the windows", plain, ("tokens", "lengths", "documents"))
    rows = tokens_from_json("the windows", fields["tokens"], vocab_size)
    documents = read_counts("the windows: documents", fields["documents"], len(rows))
    if not isinstance(fields["lengths"], list) or len(fields["lengths"]) != len(rows):
        raise InvalidState(f"the windows' lengths must be a list of {len(rows)}")
    windows = []
    for tokens, lengths, count in zip(rows, fields["lengths"], documents, strict=True):
        parts = read_counts("the lengths of a window", lengths)
        if sum(parts) != len(tokens) or 0 in parts or len(tokens) > size or count > len(parts):
            raise InvalidState(
                f"a window has {len(tokens)} tokens in fragments of {parts}, of which {count} open "
                f"a document; at most {size} tokens and as many fragments are possible"
            )
        windows.append(Window(tokens, tuple(parts), count))
    return windows
