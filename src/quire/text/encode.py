"""Texts to documents: tokens with BOS and EOS. The only place where specials are added."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.documents import Documents
from quire.errors import InvalidDocument, InvalidOption
from quire.formats.bad_records import BadRecords
from quire.ledger import Ledger, Tally, TokenTally
from quire.options import EncodeOptions, require_integer
from quire.text.byte_tokenizer import ByteTokenizer
from quire.text.encoded import Encoded
from quire.text.giant_words import MOST, giant_word
from quire.text.tokenizer import Tokenizer, adds_bos

IGNORE = -100
"""The label of a token that is not trained."""


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer, options: EncodeOptions) -> Documents:
    """All texts as documents; empty and too long ones are left out and counted."""
    return with_specials(encode_contents(texts, tokenizer, options), tokenizer, options)


def encode_contents(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    options: EncodeOptions,
    problems: dict[int, str] | None = None,
) -> Encoded:
    """The tokens of the texts, cut where the options say, without specials.

    A text that no tokenizer can be given has no tokens and is added to ``problems``; without them
    it is an error.
    """
    if options.truncate_at is not None:
        pattern = re.compile(options.truncate_at)
        texts = [text[: m.start()] if (m := pattern.search(text)) else text for text in texts]
    if found := unusable_texts(texts, tokenizer):
        if problems is None:
            number, problem = next(iter(found.items()))
            raise InvalidDocument(f"document {number} {problem}; split or remove such texts")
        problems |= found
        texts = ["" if number in found else text for number, text in enumerate(texts)]
    return _checked(_encode(texts, tokenizer), tokenizer)


def unusable_texts(texts: Sequence[str], tokenizer: Tokenizer) -> dict[int, str]:
    """What is wrong with texts that the tokenizer must not be given, by their numbers."""
    if isinstance(tokenizer, ByteTokenizer):  # it has no words
        return {}
    if max(map(len, texts), default=0) <= MOST:
        return {}
    found = ((number, giant_word(text)) for number, text in enumerate(texts))
    return {number: problem for number, problem in found if problem is not None}


def _encode(texts: Sequence[str], tokenizer: Tokenizer) -> Encoded:
    try:
        return tokenizer.encode_batch(texts)
    except (UnicodeError, TypeError) as error:
        for number, text in enumerate(texts):
            if lone := re.search("[\ud800-\udfff]", text):
                raise InvalidDocument(
                    f"document {number} has half a surrogate pair at character {lone.start()}, "
                    "which no encoding has; repair or remove such texts before packing"
                ) from error
        raise


def with_specials(
    encoded: Encoded,
    tokenizer: Tokenizer,
    options: EncodeOptions,
    bad: BadRecords | None = None,
    labels: npt.NDArray[np.int32] | None = None,
) -> Documents:
    """Documents with BOS and EOS; bad records are left out.

    A document's EOS is one of its tokens; BOS is stored once, as it starts every fragment. With the
    ``labels`` of the tokens, EOS is trained and BOS is not.
    """
    bos, eos = _special_ids(encoded, tokenizer, options)
    starts, lengths = _behind_bos(encoded, bos)
    good = np.ones(len(lengths), dtype=bool) if bad is None else bad.good_of(len(lengths))
    empty = good & (lengths == 0)
    limit = options.drop_longer_than or np.iinfo(np.int64).max
    too_long = good & (lengths + (bos is not None) > limit)
    kept = np.flatnonzero(good & ~empty & ~too_long)
    num_cut = 0
    if options.truncate_to is not None:
        whole, lengths = lengths, lengths.copy()
        lengths[kept] = np.minimum(whole[kept], options.truncate_to)
        num_cut = int((whole - lengths).sum())
    ledger = _left_out(lengths, empty, too_long, num_cut)
    given = {"input_ids": (encoded.tokens, bos)}
    if labels is not None:
        given["labels"] = (labels, None if bos is None else IGNORE)
    columns, offsets = {}, starts
    for name, (values, opening) in given.items():
        columns[name], offsets = _with_special_tokens(values, starts, lengths, opening, eos)
    lengths = lengths + (eos is not None)
    return Documents(
        columns=columns,
        offsets=offsets[kept],
        lengths=lengths[kept],
        numbers=kept,
        prefix_at=None if bos is None else 0,
        ends_with_eos=eos is not None,
        is_paired=bad is not None and bad.has_pairs(len(good)),
        ledger=ledger if bad is None else ledger + bad.ledger(),
    )


def _with_special_tokens(
    tokens: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    bos: int | None,
    eos: int | None,
) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The documents end to end with their special tokens, and their offsets."""
    if eos is not None:
        return _with_ends(tokens, offsets, lengths, bos, eos)
    if bos is not None:
        return pa.array(np.append(np.int32(bos), tokens)), offsets + 1
    return pa.array(tokens), offsets


def _with_ends(
    tokens: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    bos: int | None,
    eos: int,
) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The documents end to end, each with its EOS, after BOS if there is one; and their offsets."""
    end = np.array([eos], dtype=np.int32)
    pieces = [] if bos is None else [np.array([bos], dtype=np.int32)]
    for start, stop in zip(offsets.tolist(), (offsets + lengths).tolist(), strict=True):
        pieces += (tokens[start:stop], end)
    starts = len(pieces) % 2 + np.cumsum(lengths + 1) - (lengths + 1)
    return pa.array(np.concatenate([*pieces, end[:0]])), starts


def without_bos(
    encoded: Encoded, labels: npt.NDArray[np.int32], bos: int
) -> tuple[Encoded, npt.NDArray[np.int32]]:
    """The texts and their labels without a BOS that a text already has."""
    starts, lengths = _behind_bos(encoded, bos)
    if (lengths == encoded.lengths).all():
        return encoded, labels
    places = np.arange(lengths.sum()) + (starts - np.cumsum(lengths) + lengths).repeat(lengths)
    return Encoded(tokens=encoded.tokens[places], lengths=lengths), labels[places]


def _behind_bos(
    encoded: Encoded, bos: int | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where contents start and how long they are, without a BOS that a text already has.

    Many chat templates write one; every fragment starts with BOS, and none with two.
    """
    starts, lengths = np.cumsum(encoded.lengths) - encoded.lengths, encoded.lengths
    if bos is None:
        return starts, lengths
    opened = lengths > 0
    opened[opened] = encoded.tokens[starts[opened]] == bos
    if not opened.any():
        return starts, lengths
    others = np.append(np.flatnonzero(encoded.tokens != bos), len(encoded.tokens))
    skipped = np.minimum(others[np.searchsorted(others, starts)] - starts, lengths)
    return starts + skipped, lengths - skipped


def _special_ids(
    encoded: Encoded, tokenizer: Tokenizer, options: EncodeOptions
) -> tuple[int | None, int | None]:
    """BOS and EOS, if they are wanted and the tokenizer has them."""
    wants_bos = adds_bos(tokenizer) if options.add_bos is None else options.add_bos
    wanted = {"bos_token_id": wants_bos, "eos_token_id": options.add_eos}
    ids = {name: getattr(tokenizer, name) for name, is_wanted in wanted.items() if is_wanted}
    found = {name: require_integer(name, i, 0) for name, i in ids.items() if i is not None}
    size = None if encoded.from_vocabulary or not found else tokenizer.vocab_size
    for name, token in found.items():
        if size is not None and token >= size:
            raise InvalidOption(f"{name} is {token} but the vocabulary has {size} ids from 0 on")
    return found.get("bos_token_id"), found.get("eos_token_id")


def _left_out(
    lengths: npt.NDArray[np.int64],
    empty: npt.NDArray[np.bool],
    too_long: npt.NDArray[np.bool],
    num_cut: int,
) -> Ledger:
    num_empty, num_long = int(empty.sum()), int(too_long.sum())
    tokens = int(lengths[too_long].sum())
    return Ledger(
        documents=Tally(
            input=num_empty + num_long, dropped={"empty": num_empty, "too_long": num_long}
        ),
        tokens=TokenTally(
            input=tokens + num_cut, dropped={"too_long": tokens, "truncated": num_cut}
        ),
    )


def _checked(encoded: Encoded, tokenizer: Tokenizer) -> Encoded:
    """Raise for ids outside the vocabulary: an embedding table would wrap or fail much later."""
    if encoded.from_vocabulary or not len(encoded.tokens):
        return encoded
    size = tokenizer.vocab_size
    lowest, highest = int(encoded.tokens.min()), int(encoded.tokens.max())
    if lowest < 0 or (size is not None and highest >= size):
        wrong = lowest if lowest < 0 else highest
        at = int(np.argmax(encoded.tokens == wrong))
        document = int(np.searchsorted(np.cumsum(encoded.lengths), at, side="right"))
        raise InvalidDocument(
            f"document {document} has token id {wrong} but the vocabulary has {size} ids from 0 "
            "on; the tokenizer does not belong to this vocabulary"
        )
    return encoded
