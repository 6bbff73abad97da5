"""First-fit decreasing over a buffer of documents, packed as a whole when it is full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from quire.errors import InvalidState
from quire.plan import PlanOptions
from quire.stream.packers.first_fit import Part, first_fit_rows
from quire.stream.packers.tails import read_tail
from quire.stream.state import State, Tokens, read_fields, tokens_from_json, tokens_to_json
from quire.stream.windows import Window, window_of


class BinPacker:
    """Buffers documents, then packs them all; documents longer than a window are split."""

    def __init__(
        self,
        size: int,
        vocab_size: int,
        buffer_docs: int,
        max_docs: int | None = None,
        tail: int = 1,
    ) -> None:
        self._vocab_size, self._buffer_docs = vocab_size, buffer_docs
        self._options = PlanOptions(
            max_length=size,
            strategy="first_fit",
            overlong="split",
            max_documents_per_row=max_docs,
            min_tail=tail,
        )
        self._documents: list[Tokens] = []

    @property
    def pending(self) -> tuple[int, int]:
        """Documents and tokens that wait."""
        return len(self._documents), sum(map(len, self._documents))

    def add(self, tokens: Tokens) -> list[Window]:
        """The windows of the whole buffer, when this document fills it."""
        self._documents.append(tokens)
        return self.flush() if len(self._documents) == self._buffer_docs else []

    def flush(self) -> list[Window]:
        """The windows of everything in the buffer."""
        documents, self._documents = self._documents, []
        if not documents:
            return []
        rows = first_fit_rows([len(tokens) for tokens in documents], self._options)
        return [_window(documents, row) for row in rows]

    def freeze(self) -> Callable[[], State]:
        """The documents in the buffer."""
        documents, tail = list(self._documents), self._options.min_tail
        return lambda: {"tokens": tokens_to_json(documents), "tail": tail}

    def restore(self, state: object) -> None:
        """Take over the buffer."""
        fields = read_fields("the bin packer", state, ("tokens", "tail"))
        documents = tokens_from_json("the bin packer", fields["tokens"], self._vocab_size)
        if len(documents) >= self._buffer_docs:
            raise InvalidState(
                f"the bin packer holds {len(documents)} documents but packs them when it has "
                f"{self._buffer_docs}; use a state as get_state() gave it"
            )
        tail = read_tail("the bin packer", fields["tail"])
        self._documents, self._options = documents, replace(self._options, min_tail=tail)


def _window(documents: list[Tokens], parts: list[Part]) -> Window:
    fragments = [documents[number][start:stop] for number, start, stop in parts]
    return window_of(fragments, num_documents=sum([start == 0 for _, start, _ in parts]))
