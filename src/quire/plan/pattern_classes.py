"""Sizes grouped into classes, so that the linear program stays small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quire.plan.lengths import IntArray


@dataclass(frozen=True, kw_only=True, slots=True)
class Classes:
    """Adjacent sizes that the program takes for one size."""

    first: IntArray
    """Index of the first, largest size of each class."""
    stop: IntArray
    """One past the index of the last size; classes cover all sizes but the sand."""
    demands: IntArray
    """Fragments in each class."""
    typical: IntArray
    """The mean size of each class, rounded."""
    smallest: IntArray
    sand: int
    """Total size of the fragments that are in no class."""
    width: float
    """Mean distance between the ends of a class, over fragments."""


def group_sizes(sizes: IntArray, counts: IntArray, num_classes: int, num_large: int) -> Classes:
    """The first ``num_large`` sizes in at most so many classes; the others are sand.

    Rounding a size costs its class's width. The total over fragments is least where widths are
    inverse to the root of the density, so classes are quantiles of the root of the counts.

    >>> group_sizes(np.array([9, 8, 3, 1]), np.array([1, 1, 4, 7]), 2, 3).typical
    array([9, 3])
    """
    large, number = sizes[:num_large], counts[:num_large]
    first = _class_starts(number, num_classes)
    stop = np.append(first[1:], num_large)
    demands = np.add.reduceat(number, first)
    mean = np.add.reduceat(number * large, first) / demands
    width = float(demands @ (large[first] - large[stop - 1]) / demands.sum())
    return Classes(
        first=first,
        stop=stop,
        demands=demands,
        typical=np.floor(mean + 0.5).astype(np.int64),
        smallest=large[stop - 1],
        sand=int(sizes[num_large:] @ counts[num_large:]),
        width=width,
    )


def _class_starts(counts: IntArray, num_classes: int) -> IntArray:
    if len(counts) <= num_classes:
        return np.arange(len(counts))
    weights = np.sqrt(counts)
    middles = np.cumsum(weights) - weights / 2
    labels = (middles * (num_classes / weights.sum())).astype(np.int64)
    return np.flatnonzero(np.diff(labels, prepend=-1))
