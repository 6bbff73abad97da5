"""What a row without `document_starts` is: one document, or several that its tokens tell apart."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy.typing as npt

from quire.boundaries import starts_from_tokens
from quire.collate.rows import Ints, Rows, one_document
from quire.collate.special_tokens import SpecialTokens, bos_token_id, eos_token_id
from quire.errors import InvalidOption, InvalidRow


def require_packed_sequences(value: object) -> None:
    """Raise unless the option is None, True or False."""
    if value not in (None, True, False):
        raise InvalidOption(f"packed_sequences is {value!r} but must be None, True or False")


def starts_without(
    tokens: Ints, tokenizer: SpecialTokens | None, packed_sequences: bool | None
) -> npt.ArrayLike:
    """The starts of a row that came without: found from its tokens if it is said to be packed."""
    if not packed_sequences:
        return one_document(tokens)
    if (eos := eos_token_id(tokenizer)) is not None:
        return starts_from_tokens(tokens, eos)
    if (bos := bos_token_id(tokenizer)) is not None:
        return starts_from_tokens(tokens, bos, ends=False)
    raise InvalidRow(
        "packed_sequences=True, but a row has no document_starts and the tokenizer has neither "
        "EOS nor BOS to find them by; pack the data again, or leave packed_sequences at None"
    )


@dataclass(slots=True)
class LostStartsWarning:
    """Warns once that rows look packed although no row came with starts.

    A Trainer drops `document_starts` by default, and nothing else in the batch would show it.
    """

    given: bool = field(default=False, init=False)

    def check(self, rows: Rows, tokenizer: SpecialTokens | None) -> None:
        """Warn if no row has starts and one has EOS or BOS between its first and last token."""
        if self.given or rows.came_with_starts:
            return
        for name, token_id in (("EOS", eos_token_id(tokenizer)), ("BOS", bos_token_id(tokenizer))):
            for row, tokens in enumerate(rows.tokens if token_id is not None else ()):
                inside = tokens[1:-1] == token_id
                if inside.any():
                    self.given = True
                    _warn(row, int(inside.argmax()) + 1, f"{name} ({token_id})")
                    return


def _warn(row: int, place: int, token: str) -> None:
    warnings.warn(
        f"no row of the batch has document_starts, but row {row} has {token} inside, at position "
        f"{place}: if rows are packed, their documents now attend to each other. A Trainer drops "
        "document_starts unless it is given remove_unused_columns=False. If every row is one "
        "document (chats contain EOS too), packed_sequences=False says so and silences this",
        stacklevel=4,
    )
