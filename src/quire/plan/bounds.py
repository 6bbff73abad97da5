"""Proven lower bounds on the number of rows.

Each bound is a dual feasible function: a weight for each size such that no fragments that fit
into one row weigh more than 1 together. The sum of all weights, rounded up, is then a bound.
"""

from __future__ import annotations

import numpy as np

from quire.errors import OversizedDocument
from quire.plan.histogram import distinct_sizes
from quire.plan.lengths import IntArray, Lengths, as_lengths
from quire.plan.options import PlanOptions

_FEKETE_SCHEPERS = range(33)
_MOST_TOKENS = 2**57
"""Weights are up to 33 times the sizes: with more tokens than this their sum exceeds 64 bits."""


def lower_bound(
    lengths: Lengths,
    max_length: int,
    *,
    prefix: int = 0,
    align: int = 1,
    max_documents_per_row: int | None = None,
    search: bool = False,
) -> int:
    """A number of rows that no plan for these lengths, uncut, can go below.

    The largest of: the total length over the max_length; Martello and Toth's L2; the functions u(k)
    of Fekete and Schepers; documents over ``max_documents_per_row``. Empty documents need no row.
    With ``search``, also what the linear program of ``tight`` proves, which takes up to seconds and
    needs scipy: it is often the optimum where two to four documents fill a row.

    >>> lower_bound([6, 6, 6], max_length=10)  # 18 tokens, but no two fit together
    3
    """
    options = PlanOptions(
        max_length=max_length,
        prefix=prefix,
        align=align,
        max_documents_per_row=max_documents_per_row,
    )
    sizes = as_lengths(lengths)
    sizes = sizes[sizes > 0].astype(np.int64)
    if len(sizes) and int(sizes.max()) > options.max_fragment:
        raise OversizedDocument(
            f"a document has {sizes.max()} tokens but a row holds {options.max_fragment}; "
            "the bound is for documents that fit, so split or truncate them first"
        )
    spaces = options.spaces(sizes)
    quick = bound_of_sizes(spaces, options)
    return max(quick, _searched_bound(spaces, options)) if search else quick


def bound_of_sizes(sizes: IntArray, options: PlanOptions) -> int:
    """The bound for fragments of these sizes, none larger than a row."""
    if not len(sizes):
        return 0
    distinct, counts = distinct_sizes(sizes // options.align)
    return _bound(
        distinct, counts, options.row_space // options.align, options.max_documents_per_row
    )


def _searched_bound(spaces: IntArray, options: PlanOptions) -> int:
    """What the linear program proves."""
    from quire.plan.search.bound import pattern_bound
    from quire.plan.search.columns import require_solver

    require_solver("lower_bound(..., search=True)")
    units, cap = spaces // options.align, options.max_documents_per_row
    distinct, counts = distinct_sizes(units)
    return pattern_bound(distinct[::-1], counts[::-1], options.row_space // options.align, cap)


def bound_of_counts(sizes: list[int], counts: list[int], max_length: int, cap: int) -> int:
    """The bound for this many fragments of each size; sizes are decreasing."""
    increasing, numbers = np.array(sizes[::-1]), np.array(counts[::-1])
    return _bound(increasing, numbers, max_length, cap)


def _bound(distinct: IntArray, counts: IntArray, row_space: int, cap: int | None) -> int:
    if float(counts @ distinct.astype(np.float64)) > _MOST_TOKENS:  # Python integers have no limit
        distinct, counts = distinct.astype(object), counts.astype(object)
    # A row that holds everything is as good as a larger one, and its size fits into 64 bits.
    max_length = min(row_space, int(counts @ distinct))
    bounds = [_martello_toth(distinct, counts, max_length)]
    bounds += [_fekete_schepers(distinct, counts, max_length, k) for k in _FEKETE_SCHEPERS]
    if cap:
        bounds.append(-(-int(counts.sum()) // cap))
    return max(bounds)


def _martello_toth(sizes: IntArray, counts: IntArray, max_length: int) -> int:
    """L2: fragments over half a row need a row each; the middle ones fill what those leave.

    For a threshold k <= max_length / 2, fragments smaller than k are ignored, and those over
    max_length - k leave no room for any of the rest. Only the sizes themselves need to be tried as
    k: up to the next size the middle stays the same while the room shrinks.
    """
    half = max_length // 2
    k = np.append(sizes[sizes <= half], half)
    number = np.append(0, np.cumsum(counts))
    tokens = np.append(0, np.cumsum(counts * sizes))
    from_k = np.searchsorted(sizes, k)
    over_half = np.searchsorted(sizes, half, side="right")
    over_rest = np.searchsorted(sizes, max_length - k, side="right")
    middle = tokens[over_half] - tokens[from_k]
    room = (number[over_rest] - number[over_half]) * max_length
    room -= tokens[over_rest] - tokens[over_half]
    extra = np.maximum(0, -((room - middle) // max_length))
    return int((number[-1] - number[over_half] + extra).max())


def _fekete_schepers(sizes: IntArray, counts: IntArray, max_length: int, k: int) -> int:
    """u(k): in a row of size C, x weighs floor((k + 1) x / C) / k, or x / C if that is whole.

    Computed in integers, times k * C. k = 0 is the plain sum over the max_length.
    """
    if not k:
        return -(-int(counts @ sizes) // max_length)
    scaled = (k + 1) * sizes
    weights = np.where(scaled % max_length == 0, k * sizes, scaled // max_length * max_length)
    return -(-int(counts @ weights) // (k * max_length))
