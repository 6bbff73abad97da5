"""From fragments in rows to the plan: short rows leave, the rest is shuffled and accounted for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from quire.plan.accounts import FATES, settle
from quire.plan.fragments import Fragments
from quire.plan.lengths import BoolArray, IntArray
from quire.plan.options import PlanOptions
from quire.plan.plan import Plan, fingerprint_of
from quire.plan.shuffling import permutation


def finish(
    lengths: IntArray,
    in_rows: Fragments,
    offsets: IntArray,
    options: PlanOptions,
    left_out: tuple[Fragments, str] | None = None,
) -> Plan:
    """The plan of these rows; ``left_out`` are fragments that stand in none, and their fate."""
    kept = _long_enough(in_rows, offsets, options)
    settled, fate = _fates(in_rows, offsets, kept, left_out)
    ledger = settle(lengths, settled, fate, int(np.count_nonzero(kept)), options)
    fragments, offsets = _select_rows(in_rows, offsets, kept, options)
    return Plan(
        row_offsets=offsets,
        documents=fragments.documents,
        starts=fragments.starts,
        stops=fragments.stops,
        options=options,
        ledger=ledger,
        fingerprint=fingerprint_of(lengths),
    )


def _fates(
    in_rows: Fragments,
    offsets: IntArray,
    kept: BoolArray,
    left_out: tuple[Fragments, str] | None,
) -> tuple[Fragments, npt.NDArray[np.int8] | None]:
    """All fragments with their places in `FATES`; None if every one was emitted."""
    others, reason = left_out or (in_rows.take(np.zeros(0, dtype=np.int64)), "emitted")
    if kept.all() and not len(others):
        return in_rows, None
    short: npt.NDArray[np.int8] = np.repeat(~kept, np.diff(offsets)).view(np.int8)
    code = np.full(len(others), FATES.index(reason), dtype=np.int8)
    return in_rows.joined(others), np.append(short, code)


def _long_enough(fragments: Fragments, offsets: IntArray, options: PlanOptions) -> BoolArray:
    if options.min_length == 1:
        return np.ones(len(offsets) - 1, dtype=bool)
    tokens = fragments.lengths + options.prefix
    return np.add.reduceat(tokens, offsets[:-1], dtype=np.int64) >= options.min_length


def _select_rows(
    fragments: Fragments, offsets: IntArray, kept: BoolArray, options: PlanOptions
) -> tuple[Fragments, IntArray]:
    """The rows that stay, shuffled if asked."""
    if kept.all() and not options.shuffle:
        return fragments, offsets
    rows = np.flatnonzero(kept)
    if options.shuffle:
        rows = rows[permutation(len(rows), options.seed)]
    counts = np.diff(offsets)[rows]
    new_offsets = np.append(0, np.cumsum(counts))
    return fragments.take(spans(offsets[:-1][rows], counts)), new_offsets


def spans(firsts: IntArray, counts: IntArray) -> IntArray:
    """The numbers first, first + 1, ... of every span, one span after the other.

    >>> spans(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    begins = np.cumsum(counts) - counts
    numbers: IntArray = np.arange(counts.sum()) + np.repeat(firsts - begins, counts)
    return numbers
