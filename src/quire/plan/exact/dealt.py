"""Documents dealt to many rows at once; the last one or two of each row fill it exactly.

For small plans, in which a size belongs to few documents, so deciding for each size costs more than
sorting. Every step is one array operation for all rows of a round: each row gets one of the largest
documents, then others until there is space for about two. Of a few documents that could come next,
the one is chosen that leaves an exact partner, of sizes of which the largest share is left. What a
row cannot use goes back into the pool, and the next round is dealt from that. Documents are drawn
evenly from the sorted pool, so a row mixes lengths.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

import numpy as np

from quire.plan.exact.problem import Problem, RowKinds
from quire.plan.lengths import BoolArray, IntArray

_BLOCKS = 8000
"""As many blocks of equal documents are dealt at least, if there are so many documents; a row of
blocks of 2^k documents is 2^k equal rows."""
_PART = 0.8
"""The part of the rows still to be made that one round deals."""
_USUAL_LAST = 2.6
"""A row with space for more documents of average size than this gets another one."""
_TRIED = 4
"""Documents that a row tries as its last but one, at a time."""
_PASSES = 2
_MOST_ROUNDS = 12
_LEFT = 0.05
"""The part of the tokens that is left to other searches."""
_FEWEST_ROWS = 20
_POOR = 0.5
"""A first round that completes a smaller part of its rows than this ends the search."""
_GOLDEN = 0.6180339887


def dealt_rows(problem: Problem) -> tuple[RowKinds, Problem]:
    """Rows that are filled exactly, and the documents that are in none.

    >>> kinds, left = dealt_rows(Problem.of([6, 4], [3000, 3000], max_length=10, cap=9))
    >>> kinds.num_rows + left.num_documents // 2  # some are left to other searches
    3000
    """
    kinds, times = RowKinds(), 1 << 62
    counts: IntArray = np.array(problem.counts)
    while times > 1:
        times = min(times // 2, _equal_rows(counts))
        blocks = counts // times
        counts -= times * _deal(blocks, problem, kinds, times)
    return kinds, replace(problem, counts=counts.tolist())


def _equal_rows(counts: IntArray) -> int:
    times = 1
    while int((counts // (2 * times)).sum()) >= _BLOCKS:
        times *= 2
    return times


def _deal(blocks: IntArray, problem: Problem, kinds: RowKinds, times: int) -> IntArray:
    """Add rows of these blocks, and return how many blocks of each size they hold."""
    used = np.zeros_like(blocks)
    sizes = np.arange(len(blocks))
    total = left = int(blocks @ sizes)
    for number in range(_MOST_ROUNDS):
        num_rows = int(_PART * left / problem.space)
        if num_rows < _FEWEST_ROWS or left < _LEFT * total:
            break
        rows = _Round(blocks - used, problem, num_rows, number).run()
        kinds.add_all(rows, times)
        used += np.bincount(rows.reshape(-1), minlength=len(blocks))
        used[0] = 0
        left = total - int(used @ sizes)
        if rows.shape[1] < (0.1 if number else _POOR) * num_rows:
            break
    return used


class _Round:
    """Rows dealt at the same time; row r is column r of all arrays, 0 is no document."""

    def __init__(self, counts: IntArray, problem: Problem, num_rows: int, number: int) -> None:
        self._cap = problem.cap
        self._number = number
        pool = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        most = min(int(num_rows / _PART) + 1, len(pool))
        large, small = pool[len(pool) - most :], pool[: len(pool) - most]
        large, small = large[_spread(most, number)], small[_spread(len(small), number)]
        num_rows = min(num_rows, most)
        self._columns = [large[:num_rows]]
        self._space = problem.space - large[:num_rows]
        mean = float(pool.mean())
        self._closers = np.append(self._deal(small, mean), large[num_rows:])
        self._left = counts - np.bincount(np.concatenate(self._columns), minlength=len(counts))
        self._left[0] = 0
        self._at_start = np.maximum(counts, 1)

    def _deal(self, pool: IntArray, mean: float) -> IntArray:
        """Give documents to rows that need more than about two; return those not dealt."""
        dealt = 0
        while len(self._columns) < self._cap - 2:
            need = np.flatnonzero(self._space > _USUAL_LAST * mean)
            if not len(need) or dealt + 2 * len(need) > len(pool):
                break
            column = np.zeros_like(self._space)
            next_ones = pool[dealt : dealt + len(need)]
            column[need] = next_ones * (next_ones <= self._space[need])
            self._space = self._space - column
            self._columns.append(column)
            dealt += len(need)
        return pool[dealt:]

    def run(self) -> IntArray:
        """The rows that are full."""
        waiting = np.arange(len(self._space))
        full = [np.zeros((len(self._columns) + 2, 0), dtype=np.int32)]
        for number in range(_PASSES if len(self._closers) else 0):
            last = self._last_two(self._space[waiting], number)
            done = self._available(last)
            rows = waiting[done]
            last = last[:, done]
            self._left -= np.bincount(last.reshape(-1), minlength=len(self._left))
            full.append(np.concatenate([[column[rows] for column in self._columns], last]))
            waiting = waiting[~done]
        rows = np.concatenate(full, axis=1)
        return rows[:, (rows > 0).sum(axis=0) <= self._cap]

    def _last_two(self, space: IntArray, number: int) -> IntArray:
        """Two sizes with this sum for each space, those with the largest shares left."""
        self._left[0] = 0
        share = np.where(self._left > 0, self._left / self._at_start, -9.0)
        share[0] = 0.5  # one document that fills the space is as good as two usual ones
        drawn = np.arange(_TRIED * len(space)) + (number + self._number) * 131
        tried = np.zeros((_TRIED + 1, len(space)), dtype=np.int32)
        tried[1:] = self._closers[drawn % len(self._closers)].reshape(_TRIED, -1)
        others = space - tried
        value = share[tried] + share[others]
        value[others < 0] = -18.0
        best = value.argmax(axis=0)
        columns = np.arange(len(space))
        chosen: IntArray = np.stack([tried[best, columns], others[best, columns]])
        chosen[:, value[best, columns] < 0] = -1
        return chosen

    def _available(self, wanted: IntArray) -> BoolArray:
        """Which rows can have both sizes that they want; earlier rows come first."""
        flat = wanted.reshape(-1)
        order = np.argsort(flat.astype(np.uint16), kind="stable")
        in_order = flat[order]
        first = np.flatnonzero(np.diff(in_order, prepend=-2))
        rank = np.empty_like(order)
        rank[order] = np.arange(len(flat)) - np.repeat(first, np.diff(first, append=len(flat)))
        fine = ((rank < self._left[flat]) | (flat == 0)) & (flat >= 0)
        available: BoolArray = fine.reshape(2, -1).all(axis=0)
        return available


def _spread(count: int, first: int) -> IntArray:
    """The numbers below ``count`` in an order in which any stretch is spread evenly over them.

    >>> _spread(8, first=0)
    array([0, 5, 2, 7, 4, 1, 6, 3])
    """
    step = int(_GOLDEN * count) | 1
    while gcd(step, count) > 1:
        step += 2
    numbers: IntArray = np.arange(first, first + count) * step % max(1, count)
    return numbers
