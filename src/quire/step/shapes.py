"""The lengths that rows are padded to: few different ones, for compiled models."""

from __future__ import annotations

import numpy as np

from quire.plan.lengths import IntArray
from quire.step.options import StepOptions


def padded_lengths(used: IntArray, options: StepOptions) -> IntArray:
    """The length of each row; a row without sequences is as short as possible, but not empty."""
    needed = np.maximum(used, 1)
    lengths = -(-needed // options.align_rows) * options.align_rows
    if options.shapes is None:
        return lengths
    shapes = options.shapes
    if isinstance(shapes, int):  # dummies take any shape, so they have no say in the choice
        chosen = best_shapes(lengths[used > 0] if used.any() else lengths, shapes)
    else:
        chosen = np.array(shapes)
    return chosen[np.searchsorted(chosen, lengths)]


def best_shapes(lengths: IntArray, most: int) -> IntArray:
    """At most so many lengths, such that rows padded to the next one have the least padding.

    An exact dynamic program over the distinct lengths, in ``most * distinct ** 2`` steps.

    >>> best_shapes(np.array([8, 8, 8, 7, 3, 2, 2]), most=2)
    array([3, 8])
    """
    distinct, counts = np.unique(lengths, return_counts=True)
    if len(distinct) <= most:
        return distinct
    rows = np.append(0, np.cumsum(counts))
    # least[j]: places of the shortest j distinct lengths, the last of them being a shape.
    least = rows[1:] * distinct
    chosen = [np.zeros(len(distinct), dtype=np.int64)]
    for _ in range(most - 1):
        best, choice = least.copy(), np.zeros(len(distinct), dtype=np.int64)
        for last in range(1, len(distinct)):
            places = least[:last] + (rows[last + 1] - rows[1 : last + 1]) * distinct[last]
            choice[last] = places.argmin() + 1
            best[last] = places[choice[last] - 1]
        least = best
        chosen.append(choice)
    shapes, last = [], len(distinct)
    for choice in reversed(chosen):
        if last:
            shapes.append(int(distinct[last - 1]))
            last = int(choice[last - 1])
    return np.array(shapes[::-1])
