"""``first_fit``: first-fit decreasing over a buffer that is packed as a whole when it is full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from quire.errors import InvalidState
from quire.plan import PlanOptions, plan_documents
from quire.stream.packers.packer import PackerOptions, Window, read_tail, split_points
from quire.stream.state import State, Tokens, read_fields, tokens_from_json, tokens_to_json

Fragment: TypeAlias = tuple[int, int, int]
"""A document's number in the buffer, and where its fragment starts and stops."""

_MAX_SCANNED = 1024
"""Up to this many fragments, scanning all rows is faster than the planner's tree: 0.8 against 10 µs
per document in a buffer of 128; both take the same time at about 1,500."""


class FirstFitPacker:
    """Buffers documents, then packs them all; documents longer than a window are split."""

    def __init__(self, options: PackerOptions) -> None:
        self._vocab_size, self._buffer_size = options.vocab_size, options.buffer_size
        self._options = PlanOptions(
            max_length=options.window_size,
            strategy="first_fit",
            overlong="split",
            max_documents_per_row=options.max_documents_per_row,
            min_tail=options.min_tail,
        )
        self._documents: list[Tokens] = []

    @property
    def pending(self) -> tuple[int, int, int]:
        """Documents that start and end in the buffer, and its tokens."""
        return len(self._documents), len(self._documents), sum(map(len, self._documents))

    def add(self, tokens: Tokens) -> list[Window]:
        """The windows of the whole buffer, if this document fills it."""
        self._documents.append(tokens)
        return self.flush() if len(self._documents) == self._buffer_size else []

    def flush(self) -> list[Window]:
        """The windows of the whole buffer."""
        documents, self._documents = self._documents, []
        if not documents:
            return []
        rows = first_fit_rows([len(tokens) for tokens in documents], self._options)
        return [_window(documents, row) for row in rows]

    def snapshot(self) -> Callable[[], State]:
        """The buffered documents."""
        documents, tail = list(self._documents), self._options.min_tail
        return lambda: {"tokens": tokens_to_json(documents), "tail": tail}

    def load_state_dict(self, state: object) -> None:
        """Take over the buffer of a state."""
        fields = read_fields("the packer", state, ("tokens", "tail"))
        documents = tokens_from_json("the packer", fields["tokens"], self._vocab_size)
        if len(documents) >= self._buffer_size:
            raise InvalidState(
                f"the packer holds {len(documents)} documents but packs them when it has "
                f"{self._buffer_size}; use a state exactly as it was saved"
            )
        tail = read_tail("the packer", fields["tail"])
        self._documents, self._options = documents, replace(self._options, min_tail=tail)


def first_fit_rows(lengths: Sequence[int], options: PlanOptions) -> list[list[Fragment]]:
    """The fragments of each row, from the planner or from a scan where that is faster."""
    size, tail = options.max_length, options.min_tail
    if sum(-(-length // size) for length in lengths) > _MAX_SCANNED:
        return planned_rows(lengths, options)
    fragments = [
        (number, start, stop)
        for number, length in enumerate(lengths)
        for start, stop in pairwise(
            split_points(length, size, tail) if length > size else (0, length)
        )
    ]
    return scanned_rows(fragments, size, options.max_documents_per_row or len(fragments))


def planned_rows(lengths: Sequence[int], options: PlanOptions) -> list[list[Fragment]]:
    """The rows of the planner."""
    plan = plan_documents(np.array(lengths), options)
    columns = (plan.documents.tolist(), plan.starts.tolist(), plan.stops.tolist())
    fragments = list(zip(*columns, strict=True))
    return [fragments[a:b] for a, b in pairwise(plan.row_offsets.tolist())]


def scanned_rows(fragments: Sequence[Fragment], size: int, limit: int) -> list[list[Fragment]]:
    """The same rows: longest fragment first, each into the oldest row that has space.

    Among fragments of one length, those that start a document come first, as in the planner.
    """
    spaces: list[int] = []
    rows: list[list[Fragment]] = []
    for fragment in sorted(fragments, key=lambda f: (f[1] - f[2], f[1] > 0)):
        length = fragment[2] - fragment[1]
        row = _oldest_row(spaces, length)
        if row == len(rows):
            rows.append([])
            spaces.append(size)
        rows[row].append(fragment)
        spaces[row] = spaces[row] - length if len(rows[row]) < limit else 0
    return rows


def _oldest_row(spaces: Sequence[int], length: int) -> int:
    """The first row with enough space, or the number of a new one."""
    for row, space in enumerate(spaces):
        if space >= length:
            return row
    return len(spaces)


def _window(documents: Sequence[Tokens], row: Sequence[Fragment]) -> Window:
    fragments = [documents[number][start:stop] for number, start, stop in row]
    num_ends = sum([stop == len(documents[number]) for number, _, stop in row])
    return Window.of(fragments, sum([start == 0 for _, start, _ in row]), num_ends)
