"""Texts to documents: tokens with their BOS and EOS. The one place where specials are added."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.documents.documents import Documents
from quire.documents.encoded import Encoded
from quire.documents.tokenizer import Tokenizer
from quire.errors import InvalidDocument, InvalidOption
from quire.ledger import Ledger, Tally, TokenTally
from quire.plan.options import require_integer


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodeOptions:
    """How texts become documents."""

    add_bos: bool = True
    """Open every fragment with BOS, if the tokenizer has one."""
    add_eos: bool = True
    """Close every document with EOS, if the tokenizer has one."""
    max_len: int | None = None
    """Documents with more tokens (BOS counted, EOS not) are dropped as ``too_long``."""
    truncate_at: str | None = None
    """A regular expression; the text is cut before its first match."""

    def __post_init__(self) -> None:
        if self.max_len is not None:
            require_integer("max_len", self.max_len, 1)
        if self.truncate_at is not None:
            compiled(self.truncate_at)


def compiled(pattern: str) -> re.Pattern[str]:
    """The regular expression, or an error that shows it."""
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise InvalidOption(
            f"truncate_at is {pattern!r}, which is no regular expression: {error}"
        ) from error


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer, options: EncodeOptions) -> Documents:
    """All texts as documents; empty ones and those over ``max_len`` are left out and counted.

    A document's EOS is one of its tokens; BOS opens every fragment, so it stands apart.
    """
    if options.truncate_at is not None:
        pattern = compiled(options.truncate_at)
        texts = [
            text[: match.start()] if (match := pattern.search(text)) else text for text in texts
        ]
    encoded = _checked(tokenizer.encode_batch(texts), tokenizer)
    bos = tokenizer.bos_token_id if options.add_bos else None
    eos = tokenizer.eos_token_id if options.add_eos else None
    return _with_specials(encoded, bos, eos, options.max_len)


def _with_specials(
    encoded: Encoded, bos: int | None, eos: int | None, max_len: int | None
) -> Documents:
    lengths = encoded.lengths
    empty = lengths == 0
    too_long = np.zeros_like(empty)
    if max_len is not None:
        too_long = lengths + (bos is not None) > max_len
    kept = ~(empty | too_long)
    opening = np.array([] if bos is None else [bos], dtype=np.int32)
    tokens = np.concatenate([opening, encoded.tokens])
    offsets = np.cumsum(lengths) - lengths + len(opening)
    if eos is not None:
        tokens = np.insert(tokens, offsets + lengths, np.int32(eos))
        offsets += np.arange(len(lengths))
        lengths = lengths + 1
    return Documents(
        columns={"input_ids": pa.array(tokens)},
        offsets=offsets[kept],
        lengths=lengths[kept],
        numbers=np.flatnonzero(kept),
        prefix_at=None if bos is None else 0,
        ledger=_left_out(lengths, empty, too_long),
    )


def _left_out(
    lengths: npt.NDArray[np.int64], empty: npt.NDArray[np.bool], too_long: npt.NDArray[np.bool]
) -> Ledger:
    num_empty, num_long = int(empty.sum()), int(too_long.sum())
    tokens = int(lengths[too_long].sum())
    return Ledger(
        documents=Tally(
            input=num_empty + num_long, dropped={"empty": num_empty, "too_long": num_long}
        ),
        tokens=TokenTally(input=tokens, dropped={"too_long": tokens}),
    )


def _checked(encoded: Encoded, tokenizer: Tokenizer) -> Encoded:
    """Token ids inside the vocabulary: an embedding table would wrap or fail far from here."""
    size = tokenizer.vocab_size
    if not len(encoded.tokens):
        return encoded
    lowest, highest = int(encoded.tokens.min()), int(encoded.tokens.max())
    if lowest < 0 or (size is not None and highest >= size):
        wrong = lowest if lowest < 0 else highest
        at = int(np.argmax(encoded.tokens == wrong))
        document = int(np.searchsorted(np.cumsum(encoded.lengths), at, side="right"))
        raise InvalidDocument(
            f"document {document} has token id {wrong} but the vocabulary has {size} ids from 0 "
            "on; the tokenizer and its vocabulary do not belong together"
        )
    return encoded
