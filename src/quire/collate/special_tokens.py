"""Special tokens of a tokenizer, and document starts that are found from them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy.typing as npt

from quire.boundaries import starts_from_tokens
from quire.collate.rows import Feature, Ints, Rows, one_document, read_rows
from quire.errors import InvalidRow


class SpecialTokens(Protocol):
    """Any tokenizer; an id that it lacks is None, or the attribute is missing."""

    @property
    def eos_token_id(self) -> int | None:
        """Ends a document."""


def pad_token_id(tokenizer: SpecialTokens | None) -> int:
    """The id of PAD, else of EOS, else 0: padding is known from lengths, so any id will do."""
    found = (_token_id(tokenizer, "pad"), eos_token_id(tokenizer))
    return next((token_id for token_id in found if token_id is not None), 0)


def eos_token_id(tokenizer: SpecialTokens | None) -> int | None:
    """The id of EOS, or None."""
    return _token_id(tokenizer, "eos")


def bos_token_id(tokenizer: SpecialTokens | None) -> int | None:
    """The id of BOS, or None."""
    return _token_id(tokenizer, "bos")


def _token_id(tokenizer: SpecialTokens | None, name: str) -> int | None:
    token_id: int | None = getattr(tokenizer, f"{name}_token_id", None)
    return token_id


def find_starts(tokens: Ints, tokenizer: SpecialTokens | None) -> npt.ArrayLike:
    """The starts of a row that has none, found from its tokens."""
    if (eos := eos_token_id(tokenizer)) is not None:
        return starts_from_tokens(tokens, eos)
    if (bos := bos_token_id(tokenizer)) is not None:
        return starts_from_tokens(tokens, bos, ends=False)
    raise InvalidRow(
        "packed_sequences=True, but a row has no document_starts and the tokenizer has neither "
        "EOS nor BOS to find them by; pack the data again, or use packed_sequences=None"
    )


@dataclass(slots=True)
class RowReader:
    """Reads rows, and finds the starts that rows lack; warns once if they seem to be lost.

    A Trainer drops `document_starts` by default, and nothing else in the batch would show it.
    """

    has_warned: bool = False

    def read(
        self,
        features: Sequence[Feature],
        tokenizer: SpecialTokens | None,
        packed_sequences: bool | None,
    ) -> Rows:
        """The rows of these features; ``packed_sequences`` is the option of the collators."""
        find = partial(find_starts, tokenizer=tokenizer) if packed_sequences else one_document
        rows = read_rows(features, find)
        if packed_sequences is None and not (self.has_warned or rows.came_with_starts):
            self._warn_if_packed(rows, tokenizer)
        return rows

    def _warn_if_packed(self, rows: Rows, tokenizer: SpecialTokens | None) -> None:
        """Warn if a row has EOS or BOS between its first and last token."""
        for name, token_id in (("EOS", eos_token_id(tokenizer)), ("BOS", bos_token_id(tokenizer))):
            for row, tokens in enumerate(rows.tokens if token_id is not None else ()):
                inside = tokens[1:-1] == token_id
                if inside.any():
                    self.has_warned = True
                    _warn(row, int(inside.argmax()) + 1, f"{name} ({token_id})")
                    return


def _warn(row: int, place: int, token: str) -> None:
    warnings.warn(
        f"no row of the batch has document_starts, but row {row} has {token} inside, at position "
        f"{place}: if rows are packed, their documents now attend to each other. A Trainer drops "
        "document_starts unless it is given remove_unused_columns=False. If every row is one "
        "document (chats contain EOS too), packed_sequences=False says so and silences this",
        stacklevel=5,
    )
