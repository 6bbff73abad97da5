"""Rows filled completely by cutting documents at row ends: ``wrapped`` and ``overlong="fill"``.

`pour` puts fragments into spaces, in order, and cuts them where a space ends. ``wrapped`` pours all
documents into rows; ``fill`` pours the fragments of the emptiest rows into the gaps of the others,
the largest gap first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

import numpy as np

from quire.plan.fragments import Fragments, Rows
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions

FULL_ENOUGH = 0.999
"""``fill`` empties no more rows than this utilization requires, as every cut costs context."""


def wrap(fragments: Fragments, options: PlanOptions) -> tuple[Fragments, IntArray]:
    """Fragments in document order, cut at the end of every row, and the row offsets."""
    min_piece = options.min_fragment if options.overlong == "fill" else 1
    if min_piece == 1 and options.cuts_are_free:
        return _wrap_plain(fragments, options.max_length)
    none = np.zeros_like(fragments.starts)
    poured, row = pour(fragments, none, _empty_rows(options), options, min_piece)
    return poured, Rows.of_row_numbers(row).offsets


def _wrap_plain(fragments: Fragments, max_length: int) -> tuple[Fragments, IntArray]:
    """What `pour` returns if cuts cost nothing: one cut at each multiple of ``max_length``."""
    ends = np.cumsum(fragments.lengths, dtype=np.int64)
    cuts = np.append(ends, np.arange(max_length, int(ends[-1]), max_length))
    cuts.sort(kind="stable")
    cuts = cuts[np.diff(cuts, prepend=0) > 0]
    begins = np.append(0, cuts[:-1])
    cut = np.searchsorted(ends, begins, side="right")
    pieces = fragments.take(cut)
    integer = fragments.starts.dtype
    shift = pieces.stops - ends[cut]
    starts, stops = (begins + shift).astype(integer), (cuts + shift).astype(integer)
    offsets = np.append(np.flatnonzero(begins % max_length == 0), len(cuts))
    return Fragments(documents=pieces.documents, starts=starts, stops=stops), offsets


def close_gaps(
    fragments: Fragments, rows: Rows, options: PlanOptions
) -> tuple[Fragments, IntArray]:
    """Fragments in row order and row offsets, in fewer and fuller rows where cuts allow it."""
    in_rows = fragments.take(rows.fragments)
    used = np.add.reduceat(options.spaces(in_rows.lengths).astype(np.int64), rows.offsets[:-1])
    emptied = _emptiest(used, options)
    if not len(emptied):
        return in_rows, rows.offsets
    row = np.repeat(np.arange(len(used)), rows.counts)
    stays = ~np.isin(row, emptied)
    gaps = np.argsort(used, kind="stable")[len(emptied) :]
    slots = (options.max_documents_per_row or len(fragments)) - rows.counts[gaps]
    spaces = zip((options.row_space - used[gaps]).tolist(), slots.tolist(), strict=True)
    leaves = np.flatnonzero(~stays)
    poured, space = pour(
        in_rows.take(leaves),
        in_rows.overlaps(options.stride)[leaves],
        chain(spaces, _empty_rows(options)),
        options,
        options.min_fragment,
    )
    new_rows = len(used) + np.arange(max(0, int(space.max()) + 1 - len(gaps)))
    if len(new_rows) >= len(emptied):
        return in_rows, rows.offsets
    landed = np.concatenate([gaps, new_rows])[space]
    merged = Rows.of_row_numbers(np.concatenate([row[stays], landed]))
    kept = in_rows.take(np.flatnonzero(stays))
    return kept.joined(poured).take(merged.fragments), merged.offsets


def _emptiest(used: IntArray, options: PlanOptions) -> IntArray:
    """The rows to empty so that the others become full enough."""
    total = int(used.sum())
    needed = max(-(-total // options.row_space), int(total / (FULL_ENOUGH * options.row_space)))
    return np.argsort(used, kind="stable")[: max(0, len(used) - needed)]


def _empty_rows(options: PlanOptions) -> Iterator[tuple[int, int]]:
    return repeat((options.row_space, options.max_documents_per_row or options.row_space))


def pour(
    fragments: Fragments,
    overlap: IntArray,
    spaces: Iterator[tuple[int, int]],
    options: PlanOptions,
    min_piece: int,
) -> tuple[Fragments, IntArray]:
    """Pieces of the fragments in order, and the number of the space that each is in.

    ``overlap`` holds the repeated tokens of each fragment (see `Fragments.overlaps`). ``spaces``
    yields (size, most fragments) and must not end before the fragments do. Both sides of a cut
    have at least ``min_piece`` new tokens; where that is impossible the space stays unfilled,
    unless it is an empty row and the rest of the document is longer than any row.
    """
    out: list[int] = []
    number, (room, slots) = 0, next(spaces)
    columns = (fragments.documents, fragments.starts, fragments.stops, overlap)
    for document, first, stop, repeated in zip(*(c.tolist() for c in columns), strict=True):
        start, reached = first, first + repeated
        while True:
            need = options.prefix + stop - start
            need += -need % options.align
            if slots and need <= room:
                out += (number, document, start, stop)
                room, slots = room - need, slots - 1
                break
            new_tokens = _cut(room, stop - reached, reached - start, options, min_piece)
            if slots and new_tokens:
                reached += new_tokens
                out += (number, document, start, reached)
                start = max(first, reached - options.stride)
            number, (room, slots) = number + 1, next(spaces)
    table = np.array(out, dtype=np.int64).reshape(-1, 4)
    documents, starts, stops = table[:, 1:].T.astype(fragments.documents.dtype)
    return Fragments(documents=documents, starts=starts, stops=stops), table[:, 0]


def _cut(room: int, left: int, overlap: int, options: PlanOptions, min_piece: int) -> int:
    """New tokens of a document to put into this room if the rest of it does not fit; or 0."""
    most = room - room % options.align - options.prefix - overlap
    new_tokens = min(most, left - max(options.min_tail, min_piece))
    if new_tokens >= min_piece:
        return new_tokens
    if room >= options.row_space:  # no later space is larger
        return min(most, left - options.min_tail)
    return 0
