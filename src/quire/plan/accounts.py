"""The ledger of a plan, counted from its fragments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quire.ledger import Ledger, Tally, TokenTally
from quire.plan.fragments import Fragments
from quire.plan.lengths import BoolArray, IntArray
from quire.plan.options import PlanOptions


class _Count(NamedTuple):
    """What stands in some fragments."""

    documents: int
    tokens: int
    new_tokens: int


def settle(
    lengths: IntArray,
    planned: Fragments,
    short: BoolArray,
    num_rows: int,
    options: PlanOptions,
) -> Ledger:
    """What became of every document and token.

    ``short`` marks the planned fragments whose rows were too short to stay; ``num_rows`` stayed.
    """
    overlap = planned.overlaps(options.stride)
    every = stayed = _count(planned, overlap, len(lengths))
    if short.any():
        stays = np.flatnonzero(~short)
        stayed = _count(planned.take(stays), overlap[stays], len(lengths))
    overlong = _overlong_drops(lengths, options)
    special = options.prefix * int(len(planned) - np.count_nonzero(short))
    return Ledger(
        documents=Tally(
            input=len(lengths),
            emitted=stayed.documents,
            dropped={
                "empty": len(lengths) - int(np.count_nonzero(lengths)),
                "too_long": overlong.documents,
                "row_too_short": every.documents - stayed.documents,
            },
        ),
        tokens=TokenTally(
            input=int(lengths.sum(dtype=np.int64)),
            emitted=stayed.new_tokens,
            dropped={
                "too_long" if options.overlong == "drop" else "truncated": overlong.tokens,
                "row_too_short": every.new_tokens - stayed.new_tokens,
            },
            overlap=stayed.tokens - stayed.new_tokens,
            special=special,
            padding=num_rows * options.capacity - stayed.tokens - special,
        ),
    ).check()


def _count(fragments: Fragments, overlap: IntArray, num_documents: int) -> _Count:
    present = np.zeros(num_documents, dtype=bool)
    present[fragments.documents] = True
    tokens = int(fragments.stops.sum(dtype=np.int64) - fragments.starts.sum(dtype=np.int64))
    return _Count(
        documents=int(np.count_nonzero(present)),
        tokens=tokens,
        new_tokens=tokens - int(overlap.sum(dtype=np.int64)),
    )


def _overlong_drops(lengths: IntArray, options: PlanOptions) -> _Count:
    """Documents that the policy dropped, and the tokens that it dropped or cut off."""
    overlong = lengths[lengths > options.max_fragment]
    tokens = int(overlong.sum(dtype=np.int64))
    if options.overlong == "drop":
        return _Count(len(overlong), tokens, tokens)
    if options.overlong in ("truncate", "truncate_left"):
        tokens -= len(overlong) * options.max_fragment
        return _Count(0, tokens, tokens)
    return _Count(0, 0, 0)
