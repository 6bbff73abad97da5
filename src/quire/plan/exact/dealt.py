"""Documents dealt to many rows at once; the last one or two of each row fill it exactly.

For small plans, in which a size belongs to few documents, so deciding for each size costs more than
sorting. Every step is one array operation for all rows of a round: each row gets one of the largest
documents, then others until there is space for about two. Of a few documents that could come next,
the one is chosen that leaves an exact partner, of sizes of which the largest share is left. What a
row cannot use goes back into the pool, and the next round is dealt from that. Documents are drawn
evenly from the sorted pool, so a row mixes lengths.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quire.plan.fragments import Rows
from quire.plan.histogram import decreasing_order
from quire.plan.lengths import BoolArray, FloatArray, IntArray, narrowest_signed

_BLOCKS = 8000
"""As many blocks of equal documents are dealt at least, if there are so many documents; a row of
blocks of 2^k documents is 2^k equal rows."""
_PART = 0.8
"""The part of the rows still to be made that one round deals."""
_USUAL_LAST = 2.3
"""A row with space for more documents of average size than this gets another one."""
_TRIED = 4
"""Documents that a row tries as its last but one, at a time."""
_PASSES = 2
_STEP = 131
"""Documents by which the tried ones of a pass start after those of the one before."""
_MOST_ROUNDS = 12
_LEFT = 0.04
"""The part of the tokens that is left over."""
_LEFT_OF_BLOCKS = 0.1
"""The same of blocks: rare sizes are also left, and need others to go with."""
_FEWEST_ROWS = 15
_POOR = 0.5
"""A first round that completes a smaller part of its rows than this ends the search."""
_GOLDEN = 40503
"""The golden ratio's part of 2^16: its multiples are spread evenly."""
_UNAVAILABLE = -9.0


class SizedRows:
    """Rows of sizes, each for one document."""

    def __init__(self) -> None:
        self._sizes: list[IntArray] = []
        self._counts: list[IntArray] = []

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return sum(map(len, self._counts))

    def add_table(self, table: IntArray, times: int) -> None:
        """So many rows for each column of a table, in which 0 is no document."""
        rows = table.T if times == 1 else table.T.repeat(times, axis=0)
        inside = rows > 0
        self._sizes.append(rows[inside])
        self._counts.append(np.count_nonzero(inside, axis=1))

    def add(self, rows: list[list[int]]) -> None:
        """Rows of these sizes."""
        self._sizes.append(np.array([size for row in rows for size in row], dtype=np.int64))
        self._counts.append(np.array([len(row) for row in rows], dtype=np.int64))

    def of(self, sizes: IntArray) -> Rows:
        """The same rows for documents of these sizes, of which equal ones keep their order."""
        fragments = np.empty(len(sizes), dtype=narrowest_signed(len(sizes)))
        fragments[decreasing_order(np.concatenate(self._sizes))] = decreasing_order(sizes)
        counts = np.concatenate(self._counts)
        return Rows(fragments=fragments, offsets=np.append(0, counts.cumsum()))


def deal(counts: IntArray, space: int, cap: int) -> tuple[SizedRows, IntArray]:
    """Rows that are filled exactly, from so many documents of each size, and how many are left.

    >>> rows, left = deal(np.array([0, 0, 0, 0, 3000, 0, 3000, 0, 0, 0, 0]), space=10, cap=9)
    >>> rows.num_rows + int(left[4]), bool(left[4] == left[6] < 300)  # some are left over
    (3000, True)
    """
    # The memory of larger arrays than this one is kept when they are freed (glibc): page faults
    # would cost as much as the work.
    np.empty(1 << 21, dtype=np.uint8)
    rows, times = SizedRows(), 1 << 62
    left = np.append(counts, 0)
    while times > 1:
        times = min(times // 2, _equal_rows(left))
        blocks = left // times
        for table in _rounds(blocks, space, cap, _LEFT if times == 1 else _LEFT_OF_BLOCKS):
            rows.add_table(table, times)
            left -= times * _used(table, space)
    return rows, left[:-1]


def _equal_rows(counts: IntArray) -> int:
    times = 1
    while int((counts // (2 * times)).sum()) >= _BLOCKS:
        times *= 2
    return times


def _used(table: IntArray, space: int) -> IntArray:
    used: IntArray = np.bincount(table.reshape(-1), minlength=space + 2)
    used[0] = 0
    return used


def _rounds(counts: IntArray, space: int, cap: int, least: float) -> Iterator[IntArray]:
    """The rows of each round, while rounds complete enough."""
    total = left = int(counts @ np.arange(space + 2))
    for number in range(_MOST_ROUNDS):
        num_rows = int(_PART * left / space)
        if num_rows < _FEWEST_ROWS or left < least * total:
            break
        table = _Round(counts, space, num_rows, number).run(cap, left / counts.sum())
        if not table.size:
            break
        yield table
        counts = counts - _used(table, space)
        left -= space * table.shape[1]
        if table.shape[1] < (0.1 if number else _POOR) * num_rows:
            break


class _Round:
    """Rows dealt at the same time; row r is column r of all tables, 0 is no document."""

    def __init__(self, counts: IntArray, space: int, num_rows: int, number: int) -> None:
        self._counts = counts
        self._space = space
        self._number = number
        pool = np.arange(space + 2).repeat(counts)
        most = min(int(num_rows / _PART) + 1, len(pool))
        large, small = pool[len(pool) - most :], pool[: len(pool) - most]
        large, self._small = large[_spread(most, number)], small[_spread(len(small), number)]
        self._first, self._others = large[:num_rows], large[num_rows:]

    def run(self, cap: int, mean: float) -> IntArray:
        """The rows that are full."""
        opened, room, closers = self._open(cap, mean)
        left = np.bincount(closers, minlength=self._space + 2)
        per_document = 1 / np.maximum(self._counts, 1)
        full = list[IntArray]()
        for number in range(self._number, self._number + _PASSES):
            left[0] = len(closers)
            last = self._last_two(room, _shares(left, per_document), closers, number)
            done = _available(last, left)
            rows = done.nonzero()[0]
            full.append(np.concatenate([opened[:, rows], last[:, rows]]))
            left -= np.bincount(full[-1][-2:].reshape(-1), minlength=len(left))
            waiting = (~done).nonzero()[0]
            opened, room = opened[:, waiting], room[waiting]
        return np.concatenate(full, axis=1)

    def _open(self, cap: int, mean: float) -> tuple[IntArray, IntArray, IntArray]:
        """Rows with space for about two more documents, that space, and the documents not used."""
        room = self._space - self._first
        num_rows, small = len(room), self._small
        enough, largest = _USUAL_LAST * mean, int(room.max())
        depth = min(len(small) // num_rows - 2, cap - 3, int(largest / mean))
        if depth < 1 or largest <= enough:
            return self._first[None], room, np.append(small, self._others)
        block = small[: depth * num_rows].reshape(depth, num_rows)
        sums = block.cumsum(axis=0)
        block_used = block * ((sums <= room) & (sums - block < room - enough))
        unused = (block - block_used).reshape(-1)
        closers = np.concatenate([unused[unused > 0], small[block.size :], self._others])
        opened = np.concatenate([self._first[None], block_used])
        return opened, room - block_used.sum(axis=0), closers

    def _last_two(
        self, room: IntArray, shares: FloatArray, closers: IntArray, number: int
    ) -> IntArray:
        """Two sizes with this sum for each space, those with the largest shares left."""
        count = len(room)
        tried = np.zeros((_TRIED + 1, count), dtype=np.int64)
        first = number * _STEP % len(closers)
        drawn = np.resize(closers, first + _TRIED * count)[first:]
        tried[1:] = drawn.reshape(_TRIED, count)
        value = shares[tried]
        value += shares[room - tried]
        best = value.argmax(axis=0) * count + np.arange(count)
        last = np.empty((2, count), dtype=np.int64)
        last[0] = tried.reshape(-1)[best]
        last[1] = np.where(value.reshape(-1)[best] < 0, self._space + 1, room - last[0])
        return last


def _shares(left: IntArray, per_document: FloatArray) -> FloatArray:
    """The part of the documents of each size that is left; below zero if there are none.

    Negative sizes, from the end of the array, have none.
    """
    shares = np.full(2 * len(left), _UNAVAILABLE)
    np.copyto(shares[: len(left)], left * per_document, where=left > 0)
    shares[0] = 0.5  # one document that fills the space is as good as two usual ones
    return shares


def _available(wanted: IntArray, left: IntArray) -> BoolArray:
    """Which rows can have both sizes that they want; earlier rows come first."""
    flat = wanted.reshape(-1)
    counts = np.bincount(flat, minlength=len(left))
    stop = counts.cumsum() - counts + left
    order = flat.astype(np.uint16).argsort(kind="stable")
    fine = np.empty(len(flat), dtype=bool)
    fine[order] = np.arange(len(flat)) < stop[flat[order]]
    available: BoolArray = fine[: wanted.shape[1]] & fine[wanted.shape[1] :]
    return available


def _spread(count: int, first: int) -> IntArray:
    """The numbers below ``count`` in an order in which any stretch is spread evenly over them.

    >>> _spread(8, first=0)
    array([0, 5, 2, 7, 4, 1, 6, 3])
    """
    multiples = np.arange(first, first + count, dtype=np.uint32) * np.uint32(_GOLDEN)
    return multiples.astype(np.uint16).argsort(kind="stable")
