"""Next-fit in document order: start a new row when the next fragment does not fit."""

from __future__ import annotations

import numpy as np

from quire.plan.fragments import Rows
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions
from quire.plan.strategies import Strategy


def greedy(sizes: IntArray, max_length: int, options: PlanOptions) -> Rows:
    """Rows in document order.

    >>> greedy(np.array([3, 4, 2]), 6, PlanOptions(max_length=6)).offsets
    array([0, 1, 3])
    """
    ends = np.cumsum(sizes, dtype=np.int64)
    max_length = min(max_length, int(ends[-1]))  # more changes nothing, and might exceed 64 bits
    # For every fragment, where the next row would start if a row started here; then follow that.
    following = np.searchsorted(ends, ends - sizes + max_length, side="right")
    if options.max_documents_per_row:
        limit = np.arange(len(sizes)) + options.max_documents_per_row
        following = np.minimum(following, limit)
    next_row = memoryview(following)  # type: ignore[arg-type]
    offsets = [0]
    while offsets[-1] < len(sizes):
        offsets.append(next_row[offsets[-1]])
    fragments = np.arange(len(sizes))
    return Rows(fragments=fragments, offsets=np.array(offsets, dtype=np.int64))


STRATEGY = Strategy(place=greedy, keeps_order=True)
