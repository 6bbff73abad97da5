"""The size that lags behind first, so that all sizes run out together.

Where about three documents fill a row, the other searches fill the first rows well and run out of
partners for the rest. Here each size has a share: the part of its documents that is left. A row
takes the size with the largest share, and the exact partners whose shares have the largest sum. So
what is left stays the mix that it was at the start, and the last rows can be as full as the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from quire.plan.exact.problem import Problem, RowKinds

_NONE = np.float32(-1e9)
_IMPOSSIBLE = -1e8
_PART = 12
"""A kind of row is used for at most this part of the documents left of any of its sizes."""
_DRIFT = 100.0
"""How strongly rows of many documents are avoided while the documents left become larger: nothing
but large documents would be left at the end."""
_MOST_FAILURES = 1000
"""Sizes without exact partners before the search ends: it is for other lengths."""
_COPIES = 512
"""Documents, about, that are ordered at a time to be drawn from."""
_MOST_ORDERED = 5_000_000
"""Sizes ordered in all before the search ends, about four seconds of work: with tens of thousands
of sizes it may draw through all of them for every row."""
_DRAWN = 2
"""Documents drawn as the third of a row."""


def even_rows(problem: Problem) -> tuple[RowKinds, Problem]:
    """Rows that are filled exactly, and the documents that are in none."""
    return _Search(problem).run()


class _Shares:
    """The documents left of each size, and their part of those at the start.

    The shares are also kept in reverse order: a sum of two slices then tells the shares of all
    pairs of sizes that fill a space.
    """

    def __init__(self, problem: Problem) -> None:
        self.counts = list(problem.counts)
        self._space = problem.space
        self._at_start = [max(1, count) for count in self.counts]
        numbers = np.arange(len(self.counts), dtype=np.int64)
        # A little more or less for each size, in no order, so that equal shares do not mean that
        # the small sizes come first.
        self._more = ((numbers * 40503 & 0xFFFF) / (1 << 32)).tolist()
        self.of = np.full(len(self.counts), _NONE)
        self._mirrored = self.of.copy()
        for size in np.flatnonzero(np.array(self.counts)).tolist():
            self.take(size, 0)

    def take(self, size: int, number: int) -> None:
        """Remove documents of a size; a negative number puts them back."""
        self.counts[size] -= number
        left = self.counts[size]
        share = left / self._at_start[size] + self._more[size] if left else _NONE
        self.of[size] = self._mirrored[self._space - size] = share

    def pair(self, total: int) -> tuple[float, int]:
        """The largest sum of two shares whose sizes have this sum, and the smaller size."""
        half = total // 2
        if not half:
            return _IMPOSSIBLE, 0
        first = self._space - total + 1
        sums = self.of[1 : half + 1] + self._mirrored[first : first + half]
        best = int(sums.argmax())
        if 2 * (best + 1) == total and self.counts[best + 1] < 2:
            sums[best] = _NONE
            best = int(sums.argmax())
        return float(sums[best]), best + 1


class _Search:
    def __init__(self, problem: Problem) -> None:
        self._shares = _Shares(problem)
        self._cap = problem.cap
        self._problem = problem
        self._total = self._left = problem.total
        self._num_left = problem.num_documents
        self._mean = self._total / self._num_left
        self._random = np.random.PCG64(0)
        self._order: Iterator[int] = iter(())
        self._num_ordered = 0

    def run(self) -> tuple[RowKinds, Problem]:
        """Rows until no size that is left has exact partners."""
        kinds, shares, aside = RowKinds(), self._shares, dict[int, int]()
        while self._left and len(aside) < _MOST_FAILURES and self._num_ordered < _MOST_ORDERED:
            first = int(shares.of.argmax())
            row = self._take_row(first)
            if row is None:
                aside[first] = number = shares.counts[first]
                shares.take(first, number)
                self._left -= number * first
                self._num_left -= number
                continue
            times = 1 + self._take_again(row)
            kinds.add(row, times)
            self._left -= times * self._problem.space
            self._num_left -= times * len(row)
        left = {size: count for size, count in enumerate(shares.counts) if count}
        return kinds, self._problem.rest(left | aside)

    def _take_row(self, first: int) -> list[int] | None:
        """Remove a row that is filled exactly; None if none was found."""
        shares, row, space = self._shares, [first], self._problem.space - first
        shares.take(first, 1)
        while space > 2.6 * self._mean and (size := self._draw(space)):
            shares.take(size, 1)
            row.append(size)
            space -= size
        last = self._fill(space) if space else []
        if last is None or len(row) + len(last) > self._cap:
            for size in row:
                shares.take(size, -1)
            return None
        for size in last:
            shares.take(size, 1)
        return row + last

    def _fill(self, space: int) -> list[int] | None:
        """One, two or three sizes with this sum and the largest shares, compared with the usual."""
        shares, part = self._shares, self._left / self._total
        drift = self._left / self._num_left / self._mean - 1
        usual = part * (1 + _DRIFT * max(0.0, drift))
        best, chosen = _IMPOSSIBLE, None
        if shares.counts[space]:
            best, chosen = float(shares.of[space]) - usual, [space]
        value, smaller = shares.pair(space)
        if value - 2 * usual > best:
            best, chosen = value - 2 * usual, [smaller, space - smaller]
        if chosen is None or space > 2 * self._mean:
            for _ in range(_DRAWN):
                size = self._draw(space - 2)
                if not size:
                    break
                value = float(shares.of[size])
                shares.take(size, 1)
                both, smaller = shares.pair(space - size)
                shares.take(size, -1)
                if value + both - 3 * usual > best:
                    best = value + both - 3 * usual
                    chosen = [size, smaller, space - size - smaller]
        return chosen

    def _take_again(self, row: list[int]) -> int:
        """Use the row for a part of the documents left, and return how often."""
        counts, uses = self._shares.counts, Counter(row)
        often = min((counts[size] + number) // number for size, number in uses.items())
        times = max(0, often // _PART - 1)
        if times:
            for size, number in uses.items():
                self._shares.take(size, times * number)
        return times

    def _draw(self, most: int) -> int:
        """A size of at most so much: a document at random, those with large shares earlier."""
        counts = self._shares.counts
        for _ in range(2):
            for size in self._order:
                if size <= most and counts[size]:
                    return size
            self._order = iter(self._mixed())
        return 0

    def _mixed(self) -> list[int]:
        sizes = np.flatnonzero(self._shares.of > _IMPOSSIBLE)
        left = np.array(self._shares.counts)[sizes]
        step = max(1, int(left.sum()) // _COPIES)
        copies = np.maximum(1, (left + step // 2) // step)
        which = np.repeat(np.arange(len(sizes)), copies)
        number = np.arange(len(which)) - np.repeat(np.cumsum(copies) - copies, copies)
        random = (self._random.random_raw(len(which)) >> 40) / (1 << 24)
        keys = self._shares.of[sizes][which] * (1 - number / copies[which]) * (1 + random / 2)
        first = np.argsort(-keys, kind="stable")[: max(64, len(which) // 4)]
        mixed: list[int] = sizes[which[first]].tolist()
        self._num_ordered += len(mixed)
        return mixed
