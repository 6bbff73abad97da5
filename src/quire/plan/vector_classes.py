"""Documents that are nearly alike, taken for one kind, so that the linear program stays small."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.vector_sizes import Floats, Vectors


@dataclass(frozen=True, kw_only=True, slots=True)
class Kinds:
    """Distinct sizes, and how many documents have them."""

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
    """Kinds in boxes, with the corners of the boxes in the unit of a table."""

    class_of: IntArray
    """The class of every kind."""
    demands: IntArray
    """Documents of each class."""
    largest: IntArray
    """At least the sizes of every kind of the class, in units."""
    smallest: IntArray
    """At most the sizes of every kind of the class, in units."""
    typical: IntArray
    """The mean size of each class, in units and rounded, never nothing."""
    budgets: IntArray
    """Of a row, in units."""


def group_kinds(kinds: Kinds, most_classes: int, most_cells: int) -> Classes:
    """At most so many classes, and a table of at most so many cells.

    The widest box, in parts of a row and times its documents, is halved until there are enough.
    Where the table would be too large, the finest dimension is measured in twice its unit. Sizes
    are rounded up or down: rows of `largest` sizes always fit, rows that fit hold `smallest` sizes.

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


def _halve_boxes(points: Floats, counts: IntArray, most: int) -> IntArray:
    """The box of every point; points that are equal always share one."""
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


def _widest_side(points: Floats, counts: IntArray) -> tuple[float, int]:
    sides = np.ptp(points, axis=0)
    side = int(sides.argmax())
    return float(sides[side]) * int(counts.sum()), side
