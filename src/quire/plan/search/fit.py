"""Best-fit within several budgets: each document goes into the row that suits it best.

What "best" means is a rule. "tightest" takes the row with the least space left, where dimensions
count in proportion to their scarcity; "most_alike" takes the row whose free space points in the
same direction as the document, so one with many tiles goes where tiles rather than tokens are left.
The cost is documents × open rows × dimensions, with at most about `MOST_OPEN` open rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from quire.plan.lengths import FloatArray, IntArray
from quire.plan.search.budgets import Vectors

Rule: TypeAlias = Literal["tightest", "most_alike"]

MOST_OPEN = 1024
"""If more rows than this are open, those with the least space are closed."""
_ROWS_AT_ONCE = (2, 8)
"""The emptiest row is repacked with this many others, the number drawn from this range."""
_SPREAD = 0.3
"""Decreasing order is disturbed by factors of up to 1 plus this."""


def fit_vectors(
    vectors: Vectors, order: IntArray, rule: Rule = "tightest", started: IntArray | None = None
) -> tuple[IntArray, int]:
    """The row of every document in the order (-1 for others), and the number of rows.

    ``started`` is the space left in existing rows, one line per row.

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
    """Rows with space left: one array per dimension, with one element per row."""

    def __init__(self, vectors: Vectors, started: IntArray | None) -> None:
        self._budgets: list[int] = vectors.budgets.tolist()
        self._smallest: list[int] = vectors.sizes.min(axis=0).tolist()
        # Dimensions count in proportion to their scarcity, as shares of a row.
        self._scales: list[float] = (vectors.weights / vectors.budgets).tolist()
        none = np.zeros((0, len(self._budgets)), dtype=np.int64)
        spaces = none if started is None else started
        self.num_rows = len(spaces)
        self._keep(np.arange(self.num_rows), list(spaces.T))

    def put(self, sizes: list[int]) -> int:
        """Put a document into the row with the least space left, and return that row."""
        return self._take(sizes, self._slack[: self._open])

    def put_alike(self, sizes: list[int]) -> int:
        """Put a document into the row whose free space is most parallel to it; return the row."""
        along = np.zeros(self._open)
        for space, size, scale in zip(self._spaces, sizes, self._scales, strict=True):
            along -= size * scale * scale * space[: self._open]
        return self._take(sizes, along / self._lengths[: self._open])

    def _take(self, sizes: list[int], scores: FloatArray) -> int:
        """Put a document into the row with the lowest score that can hold it, or a new one."""
        fits = self._spaces[0][: self._open] >= sizes[0]
        for space, size in zip(self._spaces[1:], sizes[1:], strict=True):
            fits &= space[: self._open] >= size
        slot = int(np.where(fits, scores, np.inf).argmin()) if self._open else 0
        if not self._open or not fits[slot]:
            slot = self._start_row()
        slack = square = 0.0
        for space, size, scale in zip(self._spaces, sizes, self._scales, strict=True):
            left = int(space[slot]) - size
            space[slot] = left
            slack += left * scale
            square += (left * scale) ** 2
        self._slack[slot] = slack
        self._lengths[slot] = square**0.5 + 1e-9
        return int(self._numbers[slot])

    def _start_row(self) -> int:
        if self._open == len(self._numbers):
            self._close_full_rows()
        slot = self._open
        self._open += 1
        for space, budget in zip(self._spaces, self._budgets, strict=True):
            space[slot] = budget
        self._numbers[slot] = self.num_rows
        self.num_rows += 1
        return slot

    def _close_full_rows(self) -> None:
        """Forget rows into which nothing fits, and the fullest if too many are open."""
        useful = np.ones(self._open, dtype=bool)
        for space, smallest in zip(self._spaces, self._smallest, strict=True):
            useful &= space >= smallest
        rows = np.flatnonzero(useful)
        fullest_first = rows[np.argsort(self._slack[rows], kind="stable")]
        kept = np.sort(fullest_first[-MOST_OPEN:])
        self._keep(self._numbers[kept], [space[kept] for space in self._spaces])

    def _keep(self, numbers: IntArray, spaces: list[IntArray]) -> None:
        """Keep these rows open, with room for as many more."""
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


def improve(vectors: Vectors, row_of: IntArray, bound: int, tries: int, seed: int) -> IntArray:
    """The rows, repacked a few at a time; fewer if some try empties one.

    A try takes the emptiest row and a few random ones, and packs what they hold by best-fit in a
    disturbed order. It is kept if it saves a row or leaves the loads more uneven: an ever emptier
    row is what finally disappears. The cost is tries × documents in a few rows.

    >>> vectors = Vectors(sizes=np.array([[5], [4], [3], [2], [6]]), budgets=np.array([10]))
    >>> improve(vectors, np.array([0, 0, 1, 1, 2]), bound=2, tries=10, seed=0)
    array([1, 0, 1, 1, 0])
    """
    rng = np.random.default_rng(seed)
    rows = _Loads.of(vectors, row_of)
    for number in range(tries):
        if rows.num_rows <= max(bound, 1):
            break
        rows.repack_some(rng, "most_alike" if number % 2 else "tightest")
    return rows.row_numbers()


@dataclass(slots=True)
class _Loads:
    """Which documents each row holds, and how full it is."""

    vectors: Vectors
    weighted: FloatArray
    """A single number for the size of each document."""
    contents: list[IntArray]
    loads: list[float]

    @classmethod
    def of(cls, vectors: Vectors, row_of: IntArray) -> _Loads:
        weighted = (vectors.shares * vectors.weights).sum(axis=1)
        order = np.argsort(row_of, kind="stable")
        firsts = np.flatnonzero(np.diff(row_of[order]))
        contents: list[IntArray] = list(np.split(order, firsts + 1))
        loads = [float(weighted[documents].sum()) for documents in contents]
        return cls(vectors=vectors, weighted=weighted, contents=contents, loads=loads)

    @property
    def num_rows(self) -> int:
        return len(self.contents)

    def row_numbers(self) -> IntArray:
        row_of = np.empty(len(self.vectors), dtype=np.int64)
        for row, documents in enumerate(self.contents):
            row_of[documents] = row
        return row_of

    def repack_some(self, rng: np.random.Generator, rule: Rule) -> None:
        chosen = self._choose(rng)
        documents = np.concatenate([self.contents[row] for row in chosen])
        sizes = self.weighted[documents] * (1 + _SPREAD * rng.random(len(documents)))
        part = self.vectors.only(documents)
        row_of, num_rows = fit_vectors(part, np.argsort(-sizes, kind="stable"), rule)
        if num_rows > len(chosen):
            return
        contents = [documents[row_of == row] for row in range(num_rows)]
        loads = [float(self.weighted[row].sum()) for row in contents]
        before = sum(self.loads[row] ** 2 for row in chosen)
        if num_rows < len(chosen) or sum(load**2 for load in loads) >= before:
            self._replace(chosen, contents, loads)

    def _choose(self, rng: np.random.Generator) -> list[int]:
        emptiest = int(np.argmin(self.loads))
        number = min(self.num_rows - 1, int(rng.integers(*_ROWS_AT_ONCE)))
        others = rng.choice(self.num_rows - 1, size=number, replace=False)
        return [emptiest, *(row + (row >= emptiest) for row in others.tolist())]

    def _replace(self, chosen: list[int], contents: list[IntArray], loads: list[float]) -> None:
        for row in sorted(chosen, reverse=True):
            del self.contents[row], self.loads[row]
        self.contents += contents
        self.loads += loads
