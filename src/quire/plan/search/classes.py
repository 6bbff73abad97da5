"""Documents of similar size grouped into classes, so that the linear program stays small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quire.plan.lengths import FloatArray, IntArray
from quire.plan.search.budgets import Vectors


@dataclass(frozen=True, kw_only=True, slots=True)
class Kinds:
    """Distinct sizes, and how many documents have each."""

    vectors: Vectors
    counts: IntArray
    kind_of: IntArray
    """The kind of every document."""

    @classmethod
    def of(cls, vectors: Vectors) -> Kinds:
        """The kinds of some documents.

        >>> Kinds.of(Vectors(sizes=np.array([[3, 1], [2, 2], [3, 1]]), budgets=np.array([9, 9])))
        Kinds(vectors=Vectors(sizes=array([[2, 2],
               [3, 1]]), budgets=array([9, 9])), counts=array([1, 2]), kind_of=array([1, 0, 1]))
        """
        sizes, kind_of, counts = np.unique(
            vectors.sizes, axis=0, return_inverse=True, return_counts=True
        )
        kinds = Vectors(sizes=sizes, budgets=vectors.budgets)
        return cls(vectors=kinds, counts=counts, kind_of=kind_of.reshape(-1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Classes:
    """Kinds that the linear program treats as one; each line of the arrays is a class."""

    class_of: IntArray
    """The class of every kind."""
    demands: IntArray
    """Documents in each class."""
    largest: IntArray
    """At least the sizes of every kind in the class."""
    smallest: IntArray
    """At most the sizes of every kind in the class."""
    typical: IntArray
    """The mean size of each class, rounded, never zero."""
    budgets: IntArray
    """Of a row, in the same units as the sizes."""

    @property
    def width(self) -> float:
        """The mean distance between the largest and smallest size in a class, over documents."""
        widths = self.largest[:, 0] - self.smallest[:, 0]
        return float(self.demands @ widths / self.demands.sum())

    def mean(self, values: FloatArray, counts: IntArray) -> FloatArray:
        """The mean over each class of a value per kind."""
        return np.bincount(self.class_of, weights=counts * values) / self.demands


def group_sizes(sizes: IntArray, counts: IntArray, most_classes: int, max_length: int) -> Classes:
    """Decreasing sizes in one dimension, grouped with their neighbors in at most this many classes.

    Rounding a size costs the width of its class. The total over documents is least where widths
    are inverse to the root of the density, so classes are quantiles of the root of the counts.

    >>> group_sizes(np.array([9, 8, 3]), np.array([1, 1, 4]), 2, 10).typical.ravel()
    array([9, 3])
    """
    labels = np.arange(len(counts))
    if len(counts) > most_classes:
        weights = np.sqrt(counts)
        middles = np.cumsum(weights) - weights / 2
        labels = (middles * (most_classes / weights.sum())).astype(np.int64)
    first = np.flatnonzero(np.diff(labels, prepend=-1))
    last = np.append(first[1:], len(sizes)) - 1
    demands = np.add.reduceat(counts, first)
    mean = np.add.reduceat(counts * sizes, first) / demands
    return Classes(
        class_of=np.repeat(np.arange(len(first)), last - first + 1),
        demands=demands,
        largest=sizes[first, None],
        smallest=sizes[last, None],
        typical=np.floor(mean + 0.5).astype(np.int64)[:, None],
        budgets=np.array([max_length]),
    )


def group_kinds(kinds: Kinds, most_classes: int, most_cells: int) -> Classes:
    """Kinds in several dimensions in at most this many classes, for a table of this many cells.

    The widest box, in parts of a row and times its documents, is halved until there are enough.
    If the table would be too large, the finest dimension is measured in twice its unit. Sizes are
    rounded up or down: rows of `largest` sizes always fit, rows that fit hold `smallest` sizes.

    >>> sizes = np.array([[1], [2], [3], [9]])
    >>> kinds = Kinds.of(Vectors(sizes=sizes, budgets=np.array([20])))
    >>> group_kinds(kinds, 2, most_cells=11)
    Classes(class_of=array([0, 0, 0, 1]), demands=array([3, 1]), largest=array([[2],
           [5]]), smallest=array([[0],
           [4]]), typical=array([[1],
           [5]]), budgets=array([10]))
    """
    units = _units(kinds.vectors.budgets, most_cells)
    budgets = kinds.vectors.budgets // units
    rounded_up = np.minimum(-(-kinds.vectors.sizes // units), budgets)
    class_of = _halve_boxes(rounded_up / budgets, kinds.counts, most_classes)
    demands = np.bincount(class_of, weights=kinds.counts).astype(np.int64)
    largest = np.zeros((len(demands), len(units)), dtype=np.int64)
    smallest = np.broadcast_to(budgets, largest.shape).copy()
    np.maximum.at(largest, class_of, rounded_up)
    np.minimum.at(smallest, class_of, kinds.vectors.sizes // units)
    totals = np.zeros(largest.shape)
    np.add.at(totals, class_of, kinds.counts[:, None] * (kinds.vectors.sizes / units))
    typical = np.floor(totals / demands[:, None] + 0.5).astype(np.int64)
    return Classes(
        class_of=class_of,
        demands=demands,
        largest=largest,
        smallest=smallest,
        typical=np.where(typical.any(axis=1, keepdims=True), np.minimum(typical, budgets), largest),
        budgets=budgets,
    )


def _units(budgets: IntArray, most_cells: int) -> IntArray:
    units = np.ones_like(budgets)
    while float(np.prod(budgets // units + 1.0)) > most_cells and (budgets // units).max() > 1:
        units[np.argmax(budgets // units)] *= 2
    return units


def _halve_boxes(points: FloatArray, counts: IntArray, most: int) -> IntArray:
    """The box of every point; equal points always share one."""
    boxes = [np.arange(len(points))]
    widths = [_widest_side(points, counts)]
    while len(boxes) < most:
        box = int(np.argmax([width for width, _ in widths]))
        width, side = widths[box]
        if width <= 0:
            break
        members = boxes[box]
        along = points[members, side]
        middle = (along.min() + along.max()) / 2
        lower, upper = members[along <= middle], members[along > middle]
        boxes[box : box + 1] = [lower, upper]
        widths[box : box + 1] = [_widest_side(points[m], counts[m]) for m in (lower, upper)]
    class_of = np.empty(len(points), dtype=np.int64)
    for box, members in enumerate(boxes):
        class_of[members] = box
    return class_of


def _widest_side(points: FloatArray, counts: IntArray) -> tuple[float, int]:
    sides = np.ptp(points, axis=0)
    side = int(sides.argmax())
    return float(sides[side]) * int(counts.sum()), side
