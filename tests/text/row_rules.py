"""The rules of packed rows, checked on the rows only, without quire's code."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from quire.blocks import PackedRows


@dataclass(frozen=True, order=True)
class Piece:
    """Tokens ``start:stop`` of a document, with its EOS as the token after its content."""

    document: int
    start: int
    stop: int


@dataclass(frozen=True)
class Marks:
    """The special tokens that rows should contain."""

    bos: int | None
    eos: int | None


def document_ids(lengths: list[int]) -> list[list[int]]:
    """Contents in which every token identifies its origin; none is a special token."""
    return [[1000 * d + k + 1000 for k in range(length)] for d, length in enumerate(lengths)]


def read_rows(rows: PackedRows, lengths: list[int], marks: Marks) -> list[list[Piece]]:
    """The pieces of every row; asserts every rule."""
    assert len(rows.input_ids) == len(rows.document_starts)
    pairs = zip(rows.input_ids, rows.document_starts, strict=True)
    return [_read_row(row, starts, lengths, marks) for row, starts in pairs]


def _read_row(row: list[int], starts: list[int], lengths: list[int], marks: Marks) -> list[Piece]:
    assert row, "a row with no token has no existence"
    assert starts[0] == 0
    assert all(before < after for before, after in pairwise(starts)), starts
    assert starts[-1] < len(row)
    edges = [*starts, len(row)]
    return [_read_piece(row[a:b], lengths, marks) for a, b in pairwise(edges)]


def _read_piece(tokens: list[int], lengths: list[int], marks: Marks) -> Piece:
    if marks.bos is not None:
        assert tokens[0] == marks.bos, "every fragment opens with BOS"
        tokens = tokens[1:]
    ended = marks.eos is not None and tokens[-1:] == [marks.eos]
    content = tokens[:-1] if ended else tokens
    assert content, "BOS or EOS stands alone"
    document, start = divmod(content[0] - 1000, 1000)
    assert content == [content[0] + k for k in range(len(content))], "no content of one document"
    stop = start + len(content)
    assert stop <= lengths[document]
    assert not ended or stop == lengths[document], "EOS before a document's true end"
    return Piece(document, start, stop + ended)


def assert_overlaps(pieces: list[Piece], stride: int) -> int:
    """The number of repeated tokens, which must follow the stride everywhere."""
    pieces_of: dict[int, list[Piece]] = defaultdict(list)
    for piece in pieces:
        pieces_of[piece.document].append(piece)
    total = 0
    for parts in pieces_of.values():
        parts.sort(key=lambda part: part.stop)
        for before, after in pairwise(parts):
            assert after.start == max(0, before.stop - stride)
            assert after.stop > before.stop, "a continuation carries a new token"
            total += before.stop - after.start
    return total
