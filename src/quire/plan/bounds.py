"""Proven lower bounds on the number of rows.

Each bound is a dual feasible function: a weight per size such that no row's worth of fragments
weighs more than one row. The sum of weights over all fragments, rounded up, is then a bound.
"""

from __future__ import annotations

import numpy as np

from quire.errors import OversizedDocument
from quire.plan.lengths import IntArray, Lengths, as_lengths
from quire.plan.options import PlanOptions

_FEKETE_SCHEPERS = range(1, 33)


def lower_bound(
    lengths: Lengths,
    capacity: int,
    *,
    prefix: int = 0,
    align: int = 1,
    max_documents_per_row: int | None = None,
) -> int:
    """The fewest rows in which these lengths could possibly stand, uncut.

    The largest of: the sum over the capacity; Martello and Toth's L2; the functions u(k) of Fekete
    and Schepers; and fragments over ``max_documents_per_row``. Empty documents need no row.

    >>> lower_bound([6, 6, 6], capacity=10)  # 18 tokens, but no two fit together
    3
    """
    options = PlanOptions(
        capacity=capacity, prefix=prefix, align=align, max_documents_per_row=max_documents_per_row
    )
    sizes = as_lengths(lengths)
    sizes = sizes[sizes > 0].astype(np.int64)
    if len(sizes) and int(sizes.max()) > options.max_fragment:
        raise OversizedDocument(
            f"a document has {sizes.max()} tokens but a row holds {options.max_fragment}; "
            "the bound is for documents that fit: split or truncate them first"
        )
    return bound_of_sizes(options.spaces(sizes), options)


def bound_of_sizes(sizes: IntArray, options: PlanOptions) -> int:
    """The bound for fragments that take up these spaces, none larger than a row."""
    if not len(sizes):
        return 0
    counts = np.bincount(sizes // options.align, minlength=options.row_space // options.align + 1)
    bounds = [_martello_toth(counts), *(_fekete_schepers(counts, k) for k in _FEKETE_SCHEPERS)]
    if options.max_documents_per_row:
        bounds.append(-(-len(sizes) // options.max_documents_per_row))
    return max(bounds)


def _martello_toth(counts: IntArray) -> int:
    """L2: fragments over half a row stand apart; the middle ones fill what those leave.

    For each threshold k <= capacity / 2, fragments smaller than k are left out, and those over
    capacity - k count as a whole row. k = 0 gives the plain sum over the capacity.
    """
    capacity = len(counts) - 1
    sizes = np.arange(capacity + 1)
    number, tokens = np.cumsum(counts), np.cumsum(counts * sizes)
    half = capacity // 2
    k = np.arange(half + 1)
    below = np.maximum(k - 1, 0)
    middle_tokens = tokens[half] - tokens[below]  # sizes k .. half
    large_number = number[capacity - k] - number[half]  # sizes over half, up to capacity - k
    large_tokens = tokens[capacity - k] - tokens[half]
    room = large_number * capacity - large_tokens
    extra = np.maximum(0, -((room - middle_tokens) // capacity))
    return int((number[capacity] - number[half] + extra).max())


def _fekete_schepers(counts: IntArray, k: int) -> int:
    """u(k): a size x of capacity C weighs floor((k + 1) x / C) / k, or x / C where that divides.

    In integers, times k * C.
    """
    capacity = len(counts) - 1
    scaled = (k + 1) * np.arange(capacity + 1)
    weights = np.where(
        scaled % capacity == 0, k * np.arange(capacity + 1), scaled // capacity * capacity
    )
    return -(-int(_exact_dot(counts, weights)) // (k * capacity))


def _exact_dot(counts: IntArray, weights: IntArray) -> int:
    """The dot product in Python integers where 64 bits might not hold it."""
    present = np.flatnonzero(counts)
    if float(counts.sum()) * float(weights.max()) < 2**62:
        return int(counts[present] @ weights[present])
    return sum(
        c * w for c, w in zip(counts[present].tolist(), weights[present].tolist(), strict=True)
    )
