"""Best-fit over several budgets at once: each document into the row that it suits best.

What "best" means is a rule. "tightest" takes the row with the least space left, dimensions counting
as much as they are scarce; "most_alike" takes the row whose free space points the same way as the
document, so that one with many tiles goes where tiles rather than tokens are left. The cost is
documents × open rows × dimensions, with at most about `MOST_OPEN` rows open.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.vector_sizes import Floats, Vectors

Rule: TypeAlias = Literal["tightest", "most_alike"]

MOST_OPEN = 1024
"""Where more rows than this are open, those with the least space are closed."""


def fit_vectors(
    vectors: Vectors, order: IntArray, rule: Rule = "tightest", started: IntArray | None = None
) -> tuple[IntArray, int]:
    """The row of every document of the order (-1 for others), and the number of rows.

    ``started`` is the space left in rows that exist already, one line per row.

    >>> vectors = Vectors(sizes=np.array([[6, 1], [5, 2], [4, 3]]), budgets=np.array([10, 4]))
    >>> fit_vectors(vectors, np.arange(3))
    (array([0, 1, 0]), 2)
    """
    row_of = np.full(len(vectors), -1, dtype=np.int64)
    if not len(vectors):
        return row_of, 0 if started is None else len(started)
    rows = _OpenRows(vectors, started)
    put = rows.put if rule == "tightest" else rows.put_alike
    sizes = vectors.sizes[order].tolist()
    row_of[order] = [put(document) for document in sizes]
    return row_of, rows.num_rows


class _OpenRows:
    """Rows that can still take something: one array per dimension, one place per row."""

    def __init__(self, vectors: Vectors, started: IntArray | None) -> None:
        self._budgets: list[int] = vectors.budgets.tolist()
        self._smallest: list[int] = vectors.sizes.min(axis=0).tolist()
        # A dimension counts as much as it is scarce, in parts of a row.
        self._scales: list[float] = (vectors.weights / vectors.budgets).tolist()
        none = np.zeros((0, len(self._budgets)), dtype=np.int64)
        spaces = none if started is None else started
        self.num_rows = len(spaces)
        self._keep(np.arange(self.num_rows), list(spaces.T))

    def put(self, sizes: list[int]) -> int:
        """The row with the least space left, after it took a document."""
        return self._take(sizes, self._slack[: self._open])

    def put_alike(self, sizes: list[int]) -> int:
        """The row whose space is most nearly parallel to a document, after it took that."""
        along = np.zeros(self._open)
        for space, size, scale in zip(self._spaces, sizes, self._scales, strict=True):
            along -= size * scale * scale * space[: self._open]
        return self._take(sizes, along / self._lengths[: self._open])

    def _take(self, sizes: list[int], scores: Floats) -> int:
        """The row with the lowest score of those that hold a document, or a new one."""
        fits = self._spaces[0][: self._open] >= sizes[0]
        for space, size in zip(self._spaces[1:], sizes[1:], strict=True):
            fits &= space[: self._open] >= size
        place = int(np.where(fits, scores, np.inf).argmin()) if self._open else 0
        if not self._open or not fits[place]:
            place = self._start_row()
        slack = square = 0.0
        for space, size, scale in zip(self._spaces, sizes, self._scales, strict=True):
            left = int(space[place]) - size
            space[place] = left
            slack += left * scale
            square += (left * scale) ** 2
        self._slack[place] = slack
        self._lengths[place] = square**0.5 + 1e-9
        return int(self._numbers[place])

    def _start_row(self) -> int:
        if self._open == len(self._numbers):
            self._close_full_rows()
        place = self._open
        self._open += 1
        for space, budget in zip(self._spaces, self._budgets, strict=True):
            space[place] = budget
        self._numbers[place] = self.num_rows
        self.num_rows += 1
        return place

    def _close_full_rows(self) -> None:
        """Forget rows into which nothing fits, and the fullest where too many are open."""
        useful = np.ones(self._open, dtype=bool)
        for space, smallest in zip(self._spaces, self._smallest, strict=True):
            useful &= space >= smallest
        rows = np.flatnonzero(useful)
        fullest_first = rows[np.argsort(self._slack[rows], kind="stable")]
        kept = np.sort(fullest_first[-MOST_OPEN:])
        self._keep(self._numbers[kept], [space[kept] for space in self._spaces])

    def _keep(self, numbers: IntArray, spaces: list[IntArray]) -> None:
        """These rows are open, with room for as many more."""
        self._open = len(numbers)
        more = np.zeros(self._open + 16, dtype=np.int64)
        self._numbers = np.concatenate([numbers, more])
        self._spaces = [np.concatenate([space, more]) for space in spaces]
        self._slack = np.zeros(len(self._numbers))
        squares = np.zeros(len(self._numbers))
        for space, scale in zip(self._spaces, self._scales, strict=True):
            self._slack += space * scale
            squares += (space * scale) ** 2
        self._lengths = np.sqrt(squares) + 1e-9
