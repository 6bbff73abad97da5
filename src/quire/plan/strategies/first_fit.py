"""First-fit decreasing: each fragment goes into the oldest row that can hold it.

Exact, on the histogram of sizes like `best_fit`. A tree over the free spaces finds the oldest row
among all with at least a given space. A row that took a fragment is still the oldest that fits, as
long as the next one fits, so it takes r // s of them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeAlias

from quire.plan.fragments import Rows
from quire.plan.histogram import decreasing_rows, fill_rows
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions
from quire.plan.strategies import Strategy

_Nodes: TypeAlias = "list[int] | defaultdict[int, int]"
_SPARSE_FROM = 1 << 22
"""From this max_length on, only the nodes in use are stored."""


def first_fit(sizes: IntArray, max_length: int, options: PlanOptions) -> Rows:
    """Rows by first-fit decreasing."""
    return decreasing_rows(sizes, max_length, options.max_documents_per_row, first_fit_runs)


def first_fit_runs(
    sizes: list[int], counts: list[int], max_length: int, cap: int
) -> tuple[list[int], int]:
    """Runs over the decreasing order, and the number of rows."""
    return fill_rows(sizes, counts, max_length, cap, _OldestRows(max_length, sum(counts)))


class _OldestRows:
    """A tournament tree: leaf s holds the oldest row with space s, a node the oldest below it."""

    def __init__(self, max_length: int, never: int) -> None:
        self._leaves = 1 << max_length.bit_length()
        self._never = never
        self._oldest: _Nodes = defaultdict(lambda: never)
        if max_length < _SPARSE_FROM:
            self._oldest = [never] * (2 * self._leaves)

    def put(self, space: int, oldest_row: int) -> None:
        tree = self._oldest
        node = self._leaves + space
        tree[node] = oldest_row
        while node > 1:
            other = tree[node ^ 1]
            row = min(tree[node], other)
            node >>= 1
            if tree[node] == row:
                break
            tree[node] = row

    def remove(self, space: int) -> None:
        self.put(space, self._never)

    def find(self, size: int) -> int:
        tree = self._oldest
        node = best = self._leaves + size
        while node > 1:
            if not node & 1 and tree[node + 1] < tree[best]:
                best = node + 1
            node >>= 1
        return self._leaf(best) if tree[best] < self._never else 0

    def _leaf(self, node: int) -> int:
        row = self._oldest[node]
        while node < self._leaves:
            node *= 2
            node += self._oldest[node] != row
        return node - self._leaves


STRATEGY = Strategy(place=first_fit, needs_order=False, runs=first_fit_runs)
