"""The ids that collators ask of a tokenizer."""

from __future__ import annotations

from typing import Protocol


class SpecialTokens(Protocol):
    """Any tokenizer; an id that it does not have is None, or the attribute is missing."""

    @property
    def eos_token_id(self) -> int | None:
        """Ends a document."""


def pad_token_id(tokenizer: SpecialTokens | None) -> int:
    """The id of PAD, without one that of EOS, without that 0: padding is known from lengths."""
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
