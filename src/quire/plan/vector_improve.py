"""Fewer rows by packing a few of them anew, again and again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.vector_fit import Rule, fit_vectors
from quire.plan.vector_sizes import Floats, Vectors

_ROWS_AT_ONCE = (2, 8)
"""The emptiest row is packed anew with so many others, the number drawn from this range."""
_SPREAD = 0.3
"""Decreasing order is disturbed by factors of up to 1 plus this."""


def improve(vectors: Vectors, row_of: IntArray, bound: int, tries: int, seed: int) -> IntArray:
    """Rows that are at most as many; fewer where some try empties one.

    A try takes the emptiest row and a few random ones, and packs what they hold by best-fit in a
    disturbed order. It counts if it saves a row, or leaves the loads more uneven: an ever emptier
    row at the end is what makes a row fall away. The cost is tries × documents in a few rows.

    >>> vectors = Vectors(sizes=np.array([[5], [4], [3], [2], [6]]), budgets=np.array([10]))
    >>> improve(vectors, np.array([0, 0, 1, 1, 2]), bound=2, tries=10, seed=0)
    array([1, 0, 1, 1, 0])
    """
    rng = np.random.default_rng(seed)
    rows = _Loads.of(vectors, row_of)
    for number in range(tries):
        if rows.num_rows <= max(bound, 1):
            break
        rows.pack_some_anew(rng, "most_alike" if number % 2 else "tightest")
    return rows.row_numbers()


@dataclass(slots=True)
class _Loads:
    """Which documents every row holds, and how full it is."""

    vectors: Vectors
    weighted: Floats
    """One number for the size of each document."""
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

    def pack_some_anew(self, rng: np.random.Generator, rule: Rule) -> None:
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
