"""Distributions as plain lists: bins, percentiles, costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quire.report.shapes import Ints, RowShapes

Floats = npt.NDArray[np.float64]
_BINS_PER_DOUBLING = 2
_MOST = 2**63 - 1


def summary(values: npt.NDArray[Any]) -> dict[str, float]:
    """Mean, extremes and percentiles.

    >>> summary(np.array([1, 2, 3]))["p50"]
    2.0
    """
    if not len(values):
        return {}
    percentiles = {f"p{q}": float(np.percentile(values, q)) for q in (5, 50, 95)}
    return {
        "mean": float(values.mean()),
        "min": float(values.min()),
        "max": float(values.max()),
        **percentiles,
    }


def even_bins(values: Ints, whole: int, num_bins: int) -> dict[str, Any]:
    """How many values, as shares of ``whole``, fall into each bin of equal width; 1 is in the last.

    >>> even_bins(np.array([1, 29, 50]), whole=50, num_bins=2)
    {'width': 0.5, 'counts': [1, 2]}
    """
    # In whole numbers: 0.58 * 50 is under 29, so that a share on an edge would fall below it. They
    # are Python's, because the pairs of a row of 2^29 places are more than an int64 holds 50 times.
    edges = np.array([min(-(-whole * n // num_bins), _MOST) for n in range(1, num_bins)])
    places = np.searchsorted(edges, values, side="right")
    return {"width": 1 / num_bins, "counts": np.bincount(places, minlength=num_bins).tolist()}


def length_bins(documents: Ints | None, fragments: Ints) -> dict[str, Any]:
    """Documents and fragments by length, in bins that grow with it: two to every doubling.

    >>> length_bins(np.array([5]), np.array([3, 2]))["fragments"]
    [0, 1, 1, 0, 0]
    """
    longest = max(
        int(values.max(initial=1)) for values in (fragments, documents) if values is not None
    )
    steps = int(np.ceil(np.log2(longest + 1) * _BINS_PER_DOUBLING))
    edges = np.unique(np.ceil(2 ** (np.arange(steps + 1) / _BINS_PER_DOUBLING)).astype(np.int64))
    edges = edges if edges[-1] > longest else np.append(edges, longest + 1)

    def counts(lengths: Ints) -> list[int]:
        return [int(count) for count in np.histogram(lengths, bins=edges)[0]]

    return {
        "edges": edges.tolist(),
        "documents": None if documents is None else counts(documents),
        "fragments": counts(fragments),
    }


def counts_of(values: Ints, most: int = 64) -> dict[str, Any]:
    """How often each value occurs; values over ``most`` stand together in bins of equal width.

    >>> counts_of(np.array([1, 1, 3]))
    {'from': [1, 2, 3], 'width': 1, 'counts': [2, 0, 1]}
    """
    if not len(values):
        return {"from": [], "width": 1, "counts": []}
    width = -(-int(values.max()) // most)
    counts = np.bincount((values - 1) // width)
    return {
        "from": (1 + np.arange(len(counts)) * width).tolist(),
        "width": width,
        "counts": counts.tolist(),
    }


def attention_costs(shapes: RowShapes) -> tuple[Ints, Floats]:
    """For each row the pairs of tokens that attend (the sum of squares), and its cost.

    The cost is that of `quire.attention_costs`: a token counts 1, a pair 2e-5.
    """
    if not shapes.num_rows:
        return np.zeros(0, np.int64), np.zeros(0)
    pairs = np.add.reduceat(shapes.fragment_lengths**2, shapes.row_offsets[:-1])
    return pairs, shapes.row_lengths + 2e-5 * pairs
