"""Labels of rendered conversations: which tokens belong to the assistant's turns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from quire.options.names import setting
from quire.text.encoded import Encoded
from quire.text.fast_tokenizer import FastTokenizer, TokenizerMismatch, mismatch
from quire.text.token_bytes import TokenBytes
from quire.text.tokenizer import CalledTokenizer

IGNORE = -100


class Rendered(NamedTuple):
    """What a template made of a conversation."""

    text: str
    turns: list[tuple[int, int]] | None
    """(start, stop) of the assistant's turns in the text, in order; None: all of it is trained."""

    @property
    def is_disordered(self) -> bool:
        """Whether the turns are not in order, as a template with marks can have them."""
        return self.turns is not None and self.turns != sorted(self.turns)

    def cut(self, start: int, stop: int) -> Rendered:
        """The part from one character to another."""
        if self.turns is None:
            return Rendered(self.text[start:stop], None)
        turns = [(max(a - start, 0), min(b, stop) - start) for a, b in self.turns if b > start]
        return Rendered(self.text[start:stop], [turn for turn in turns if turn[0] < turn[1]])


NOTHING = Rendered("", None)


def label_by_offsets(rendered: Rendered, encoder: CalledTokenizer) -> tuple[list[int], list[int]]:
    """The tokens of the text, and labels on every token that holds a character of a turn.

    A token that includes a space of the prompt, or a line end of the template, still belongs to
    the answer, as in the mask of transformers: otherwise ' Yes' is never learned. That mask is not
    used: it looks for one token at each edge, so it misses the rest of a character that has several
    tokens, and extends into the user's turn if the last token was trimmed.
    """
    if rendered.turns is None:
        ids: list[int] = encoder.encode_batch([rendered.text]).tokens.tolist()
        return ids, list(ids)
    ids, offsets = encoder.encode_with_offsets(rendered.text)
    starts, stops = [-1], [-1]
    for start, stop in rendered.turns:
        if start < stop:
            starts.append(start)
            stops.append(stop)
    # Turns follow each other, so the last one that starts before a token's end decides.
    labels = [
        token if begin < stops[bisect_left(starts, end) - 1] else IGNORE
        for token, (begin, end) in zip(ids, offsets, strict=True)
    ]
    return ids, labels


def label_fast(
    batch: Sequence[Rendered], fast: FastTokenizer
) -> tuple[Encoded, npt.NDArray[np.int32]]:
    """The ids and labels of `label_by_offsets`, from an engine that does not report offsets.

    Where a token starts and ends follows from the bytes of the tokens before it. A conversation
    whose tokens do not spell its text exactly is labelled by offsets. A sample of the conversations
    is labelled in both ways and compared.
    """
    texts = [rendered.text for rendered in batch]
    encoded = fast.encode_batch(texts)
    labels = _labels(batch, encoded, fast)
    for number, start, stop in fast.sample(texts):
        part = batch[number]
        if stop - start == len(part.text):
            ours = encoded.of(number), _part(labels, encoded.lengths, number)
        else:
            part = part.cut(start, stop)
            alone = fast.encode_unchecked([part.text])
            ours = alone.tokens, _labels([part], alone, fast)
        _require_equal(number, part, *ours, fast)
    return encoded, labels


def _labels(
    batch: Sequence[Rendered], encoded: Encoded, fast: FastTokenizer
) -> npt.NDArray[np.int32]:
    known = cast(TokenBytes, fast.token_bytes)
    sizes = known.sizes(encoded.tokens)
    ends = np.cumsum(sizes)
    token_starts = np.cumsum(encoded.lengths) - encoded.lengths
    byte_starts = np.append(0, ends)[token_starts]
    starts, stops, by_offsets = [-1], [-1], []
    ids = encoded.tokens.tolist()
    for number, rendered in enumerate(batch):
        first, start = int(token_starts[number]), int(byte_starts[number])
        spelled = ids[first : first + int(encoded.lengths[number])]
        data = rendered.text.encode()
        if not known.spell(spelled, data) or rendered.is_disordered:
            by_offsets.append(number)
            continue
        whole = [(0, len(data))]
        turns = whole if rendered.turns is None else _in_bytes(rendered, len(data))
        starts += [start + begin for begin, _ in turns]
        stops += [start + end for _, end in turns]
    # As in `label_by_offsets`: no turn reaches beyond the end of its conversation.
    turn = np.searchsorted(np.array(starts), ends, side="left") - 1
    labels = np.where(ends - sizes < np.array(stops)[turn], encoded.tokens, np.int32(IGNORE))
    for number in by_offsets:
        _relabel(number, batch[number], encoded, labels, fast)
    return labels


def _in_bytes(rendered: Rendered, size: int) -> list[tuple[int, int]]:
    """The turns in bytes, without those that are empty or beyond the end.

    A token holds a character of a turn if it holds one of its bytes: turns do not cut characters.
    """
    text, turns = rendered.text, rendered.turns or ()
    places = sorted({min(place, len(text)) for turn in turns for place in turn})
    sizes = [len(text[start:stop].encode()) for start, stop in pairwise([0, *places])]
    in_bytes = places if len(text) == size else accumulate(sizes)
    found = dict(zip(places, in_bytes, strict=True))
    ends = [[found[min(place, len(text))] for place in turn] for turn in turns]
    return [(start, stop) for start, stop in ends if start < stop]


def _relabel(
    number: int,
    rendered: Rendered,
    encoded: Encoded,
    labels: npt.NDArray[np.int32],
    fast: FastTokenizer,
) -> None:
    ids, found = label_by_offsets(rendered, cast(CalledTokenizer, fast.reference))
    if ids != encoded.of(number).tolist():
        raise mismatch(number, encoded.of(number), np.array(ids, dtype=np.int32))
    _part(labels, encoded.lengths, number)[:] = found


def _part(
    labels: npt.NDArray[np.int32], lengths: npt.NDArray[np.int64], number: int
) -> npt.NDArray[np.int32]:
    stop = int(lengths[: number + 1].sum())
    return labels[stop - int(lengths[number]) : stop]


def _require_equal(
    number: int,
    rendered: Rendered,
    ids: npt.NDArray[np.int32],
    labels: npt.NDArray[np.int32],
    fast: FastTokenizer,
) -> None:
    found = label_by_offsets(rendered, cast(CalledTokenizer, fast.reference))
    if found != (ids.tolist(), labels.tolist()):
        raise TokenizerMismatch(
            f"the labels of document {number} differ between the fast engine and tokenizers; use "
            f"{setting('tokenizer_engine', 'tokenizers')}, and report this",
            number,
        )
