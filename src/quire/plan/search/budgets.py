"""Sizes in several dimensions, validated and reduced to the dimensions that matter.

A row may be limited in tokens, tiles, images and documents at once. Many limits never bind: 64
tiles of 256 tokens each fit wherever 16,384 tokens do. Such dimensions are left out, and if one
remains it is an ordinary packing problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from quire.errors import InvalidLengths, InvalidOption, OversizedDocument
from quire.options import require_integer
from quire.plan.bounds import bound_of_sizes
from quire.plan.lengths import FloatArray, IntArray, as_lengths
from quire.plan.options import PlanOptions

VectorSizes: TypeAlias = Sequence[Sequence[int]] | IntArray

MOST_DIMENSIONS = 8
_EXACT = 2**62


@dataclass(frozen=True, kw_only=True, slots=True)
class Vectors:
    """Documents with one size per dimension, and the budget of a row in each."""

    sizes: IntArray
    """One line per document."""
    budgets: IntArray

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def shares(self) -> FloatArray:
        """Sizes as shares of a row."""
        shares: FloatArray = self.sizes / self.budgets
        return shares

    @property
    def weights(self) -> FloatArray:
        """How scarce each dimension is: the rows it needs, relative to the scarcest."""
        rows = self.sizes.sum(axis=0, dtype=np.int64) / self.budgets
        weights: FloatArray = rows / rows.max()
        return weights

    def only(self, documents: IntArray) -> Vectors:
        """The same for some of the documents."""
        return Vectors(sizes=self.sizes[documents], budgets=self.budgets)


def read_vectors(
    sizes: VectorSizes, budgets: Sequence[int] | IntArray, max_items: int | None
) -> Vectors:
    """The sizes as a validated array; ``max_items`` becomes one more dimension, of ones.

    >>> read_vectors([[5, 1], [7, 0]], [10, 4], max_items=3).sizes
    array([[5, 1, 1],
           [7, 0, 1]])
    """
    limits = _read_budgets(budgets)
    columns = _read_columns(sizes, len(limits))
    if max_items is not None:
        limits.append(require_integer("max_items", max_items, least=1))
        columns.append(np.ones(len(columns[0]), dtype=np.int64))
    vectors = Vectors(sizes=np.column_stack(columns), budgets=np.array(limits, dtype=np.int64))
    _require_that_each_fits(vectors)
    return vectors


def essential(vectors: Vectors) -> Vectors:
    """The same documents and rows, without the dimensions that never bind.

    Dimensions are sorted, whatever the order they were given in, and each is measured in its
    largest unit.

    >>> essential(Vectors(sizes=np.array([[300, 1], [800, 3]]), budgets=np.array([1024, 4])))
    Vectors(sizes=array([[3],
           [8]]), budgets=array([10]))
    """
    given = zip(vectors.sizes.T, vectors.budgets.tolist(), strict=True)
    columns = [_in_largest_unit(sizes, budget) for sizes, budget in given]
    columns = [(sizes, budget) for sizes, budget in columns if int(sizes.sum()) > budget]
    columns.sort(key=lambda column: (column[1], column[0].tolist()))
    kept: list[tuple[IntArray, int]] = []
    for place, column in enumerate(columns):
        others = kept + columns[place + 1 :]
        if not any(_implied(*column, *other) for other in others):
            kept.append(column)
    matrix = np.stack([c for c, _ in kept], axis=1) if kept else np.zeros((len(vectors), 0), int)
    return Vectors(sizes=matrix, budgets=np.array([budget for _, budget in kept], dtype=np.int64))


def _in_largest_unit(sizes: IntArray, budget: int) -> tuple[IntArray, int]:
    unit = max(1, int(np.gcd.reduce(sizes)))
    return sizes // unit, budget // unit


def _implied(sizes: IntArray, budget: int, others: IntArray, other_budget: int) -> bool:
    """Whether rows within the other budget are always within this one."""
    if max(int(sizes.max()) * other_budget, int(others.max()) * budget) > _EXACT:
        return False
    return bool((sizes * other_budget <= others * budget).all())


def _read_budgets(budgets: Sequence[int] | IntArray) -> list[int]:
    if isinstance(budgets, str | bytes) or not hasattr(budgets, "__len__"):
        raise InvalidOption(f"budgets is {budgets!r} but must be a sequence of integers")
    if not 1 <= len(budgets) <= MOST_DIMENSIONS:
        raise InvalidOption(
            f"{len(budgets)} budgets were given but a row has 1 to {MOST_DIMENSIONS} dimensions"
        )
    limits = [require_integer(f"budgets[{i}]", b, least=1) for i, b in enumerate(budgets)]
    if max(limits) > _EXACT:
        raise InvalidOption(f"a budget is {max(limits)} but the largest possible is {_EXACT}")
    return limits


def _read_columns(sizes: VectorSizes, num_dimensions: int) -> list[IntArray]:
    try:
        array = np.asarray(sizes)
    except Exception as error:  # ragged lists, tensors on a device
        raise InvalidLengths(
            f"sizes cannot be read as an array: {error}; pass {num_dimensions} integers for "
            "every document"
        ) from error
    if array.size == 0 and array.ndim <= 2 and len(array) == 0:
        array = np.zeros((0, num_dimensions), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != num_dimensions:
        raise InvalidLengths(
            f"sizes have shape {array.shape} but there are {num_dimensions} budgets; pass "
            f"{num_dimensions} integers for every document, one per budget"
        )
    return [_read_column(column, number) for number, column in enumerate(array.T)]


def _read_column(column: IntArray, number: int) -> IntArray:
    try:
        # As a list each value keeps its type: a single None turns all columns into objects.
        integers = as_lengths(column.tolist() if column.dtype == object else column)
        return integers.astype(np.int64)
    except InvalidLengths as error:
        raise InvalidLengths(f"sizes in dimension {number}: {error}") from error


def _require_that_each_fits(vectors: Vectors) -> None:
    nothing = np.flatnonzero(~vectors.sizes.any(axis=1))
    if len(nothing):
        raise InvalidLengths(
            f"document {nothing[0]} has size 0 in every dimension but must have a positive one; "
            "leave empty documents out"
        )
    documents, dimensions = np.nonzero(vectors.sizes > vectors.budgets)
    if len(documents):
        document, dimension = int(documents[0]), int(dimensions[0])
        raise OversizedDocument(
            f"document {document} has size {vectors.sizes[document, dimension]} in dimension "
            f"{dimension} but a row holds {vectors.budgets[dimension]}; split it, leave it out, "
            f"or raise budgets[{dimension}]"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OneDimension:
    """An ordinary packing problem."""

    sizes: IntArray
    max_length: int
    cap: int | None
    """The most documents in a row."""


def one_dimension(vectors: Vectors) -> OneDimension | None:
    """The documents as an ordinary packing problem, if one dimension and their number matter."""
    columns = list(zip(vectors.sizes.T, vectors.budgets.tolist(), strict=True))
    ones = [budget for sizes, budget in columns if (sizes == 1).all()]
    others = [(sizes, budget) for sizes, budget in columns if not (sizes == 1).all()]
    if not others:
        return OneDimension(sizes=columns[0][0], max_length=min(ones), cap=None)
    if len(others) > 1 or not others[0][0].all():
        return None
    return OneDimension(sizes=others[0][0], max_length=others[0][1], cap=min(ones, default=None))


def simple_bound(vectors: Vectors) -> int:
    """The largest bound of any single dimension."""
    bounds = [1]
    for column, budget in zip(vectors.sizes.T, vectors.budgets.tolist(), strict=True):
        bounds.append(bound_of_sizes(column[column > 0], PlanOptions(max_length=budget)))
    return max(bounds)
