"""Best-fit decreasing: each fragment into the row with the least space left that holds it.

Exact, and on the histogram: all rows with the same space left wait in one bucket. ``count``
fragments of size s go to the tightest bucket r >= s. A row that took one has r - s left, which is
tighter than r, so it takes the next one too while that fits: r // s in all. Then comes the next row
of the bucket, oldest first. The cost depends on the number of distinct sizes, hardly on the number
of documents.
"""

from __future__ import annotations

import numpy as np

from quire.plan.histogram import Histogram, rows_from_runs
from quire.plan.lengths import IntArray
from quire.plan.open_rows import deal_all
from quire.plan.options import PlanOptions
from quire.plan.rows import Rows


def best_fit(sizes: IntArray, capacity: int, options: PlanOptions) -> Rows:
    """Rows by best-fit decreasing; ties go to the oldest row."""
    histogram = Histogram.of(sizes)
    # A row that holds everything need not be larger; the set of spaces grows with the capacity.
    capacity = min(capacity, int(sizes.sum(dtype=np.int64)))
    cap = options.max_documents_per_row or len(sizes)
    runs, num_rows = best_fit_runs(histogram.sizes, histogram.counts, capacity, cap)
    return rows_from_runs(histogram.order, runs, num_rows)


def best_fit_runs(
    sizes: list[int], counts: list[int], capacity: int, cap: int
) -> tuple[list[int], int]:
    """Runs over the decreasing order, and the number of rows.

    >>> best_fit_runs([3, 2], [2, 1], capacity=10, cap=9)  # both 3s, then the 2, into row 0
    ([0, 1, 2, 0, 0, 1, 1, 2], 1)
    """
    return deal_all(sizes, counts, capacity, cap, _Spaces(capacity))


class _Spaces:
    """A set of integers that finds its next member: a bit set in two levels.

    One flat bit set would cost a copy of ``capacity`` bits a look: 16 kB at 131,072.
    """

    def __init__(self, largest: int) -> None:
        self._shift = max(5, largest.bit_length() // 2)
        self._low = (1 << self._shift) - 1
        self._words = [0] * ((largest >> self._shift) + 1)
        self._nonzero = 0

    def put(self, space: int, oldest_row: int) -> None:
        word = space >> self._shift
        self._words[word] |= 1 << (space & self._low)
        self._nonzero |= 1 << word

    def remove(self, space: int) -> None:
        word = space >> self._shift
        self._words[word] ^= 1 << (space & self._low)
        if not self._words[word]:
            self._nonzero ^= 1 << word

    def find(self, size: int) -> int:
        word = size >> self._shift
        bits = self._words[word] >> (size & self._low)
        if bits:
            return size + _lowest_bit(bits)
        higher = self._nonzero >> (word + 1)
        if not higher:
            return 0
        word += 1 + _lowest_bit(higher)
        return (word << self._shift) + _lowest_bit(self._words[word])


def _lowest_bit(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
