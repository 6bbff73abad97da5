"""The ledger of a plan, counted from its fragments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quire.ledger import Ledger, Tally, TokenTally
from quire.plan.fragments import Fragments
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions

FATES = ("emitted", "row_too_short", "unsupervised", "group_too_long")
"""What can become of a fragment, best first."""


@dataclass(kw_only=True, slots=True)
class _Count:
    """What met one fate."""

    fragments: int = 0
    documents: int = 0
    tokens: int = 0
    new_tokens: int = 0


def settle(
    lengths: IntArray,
    fragments: Fragments,
    fate: npt.NDArray[np.int8] | None,
    num_rows: int,
    options: PlanOptions,
) -> Ledger:
    """What became of every document and token.

    ``fate`` of each fragment is a place in `FATES`; None says that all were emitted.
    """
    counts = _by_fate(fragments, fate, len(lengths), options)
    emitted = counts.pop("emitted")
    long_documents, long_tokens = _overlong_drops(lengths, options)
    special = options.prefix * emitted.fragments
    return Ledger(
        documents=Tally(
            input=len(lengths),
            emitted=emitted.documents,
            dropped={
                "empty": len(lengths) - int(np.count_nonzero(lengths)),
                "too_long": long_documents,
                **{reason: count.documents for reason, count in counts.items()},
            },
        ),
        tokens=TokenTally(
            input=_sum(lengths),
            emitted=emitted.new_tokens,
            dropped={
                "too_long" if options.overlong == "drop" else "truncated": long_tokens,
                **{reason: count.new_tokens for reason, count in counts.items()},
            },
            overlap=emitted.tokens - emitted.new_tokens,
            special=special,
            padding=num_rows * options.capacity - emitted.tokens - special,
        ),
    ).check()


def _by_fate(
    fragments: Fragments,
    fate: npt.NDArray[np.int8] | None,
    num_documents: int,
    options: PlanOptions,
) -> dict[str, _Count]:
    """A document meets the best fate that any of its fragments met."""
    counts = {name: _Count() for name in FATES}
    seen = np.zeros(num_documents, dtype=bool)
    covered = 0
    for code, name in enumerate(FATES if fate is not None else FATES[:1]):
        which = slice(None) if fate is None else np.flatnonzero(fate == code)
        documents, stops = fragments.documents[which], fragments.stops[which]
        tokens = _sum(stops) - _sum(fragments.starts[which])
        before = int(np.count_nonzero(seen))
        seen[documents] = True
        new_tokens = tokens
        if options.stride:
            # What a fragment repeats is emitted, even where the fragment before it was dropped.
            so_far = fragments if fate is None else fragments.take(np.flatnonzero(fate <= code))
            new_tokens = _different_tokens(so_far, options.stride) - covered
            covered += new_tokens
        counts[name] = _Count(
            fragments=len(documents),
            documents=int(np.count_nonzero(seen)) - before,
            tokens=tokens,
            new_tokens=new_tokens,
        )
    return counts


def _different_tokens(fragments: Fragments, stride: int) -> int:
    return _sum(fragments.stops) - _sum(fragments.starts) - _sum(fragments.overlaps(stride))


def _sum(values: IntArray) -> int:
    return int(values.sum(dtype=np.int64))


def _overlong_drops(lengths: IntArray, options: PlanOptions) -> tuple[int, int]:
    """Documents that the policy dropped, and the tokens that it dropped or cut off."""
    overlong = lengths[lengths > options.max_fragment]
    tokens = _sum(overlong)
    if options.overlong == "drop":
        return len(overlong), tokens
    if options.overlong in ("truncate", "truncate_left"):
        return 0, tokens - len(overlong) * options.max_fragment
    return 0, 0
