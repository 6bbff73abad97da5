"""Distributions as plain lists: bins, counts and percentiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from quire.verify.output.shards import Ints

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
    # In integers: 0.58 * 50 is less than 29, so a value on an edge would fall below it. In Python's
    # integers: 50 times the pairs of a row of 2^29 tokens exceeds an int64.
    edges = np.array([min(-(-whole * n // num_bins), _MOST) for n in range(1, num_bins)])
    places = np.searchsorted(edges, values, side="right")
    return {"width": 1 / num_bins, "counts": np.bincount(places, minlength=num_bins).tolist()}


def length_bins(documents: Ints | None, fragments: Ints) -> dict[str, Any]:
    """Documents and fragments by length, in two bins for every doubling.

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
    """How often each value occurs, in wider bins if the largest value exceeds ``most``.

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
