"""Best-fit decreasing: each fragment goes into the fullest row that can hold it.

Exact, on the histogram of sizes: all rows with the same free space share one bucket. ``count``
fragments of size s go to the tightest bucket r >= s. A row that took one has r - s left, which is
tighter than r, so it takes the next one too while that fits: r // s in all. Then comes the next row
of the bucket, oldest first. The cost depends on the number of distinct sizes and hardly on the
number of documents.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from quire.plan.fragments import Rows
from quire.plan.histogram import decreasing_rows, fill_rows
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions
from quire.plan.strategies import Strategy

FEW = 1024
"""Up to this many sizes `best_fit_few` is faster: 9 times at 128 sizes, 1.5 times at 1,000."""


def best_fit(sizes: IntArray, max_length: int, options: PlanOptions) -> Rows:
    """Rows by best-fit decreasing; ties go to the oldest row."""
    return decreasing_rows(sizes, max_length, options.max_documents_per_row, best_fit_runs)


def best_fit_runs(
    sizes: list[int], counts: list[int], max_length: int, cap: int
) -> tuple[list[int], int]:
    """Runs over the decreasing order, and the number of rows.

    >>> best_fit_runs([3, 2], [2, 1], max_length=10, cap=9)  # both 3s, then the 2, into row 0
    ([0, 1, 2, 0, 0, 1, 1, 2], 1)
    """
    return fill_rows(sizes, counts, max_length, cap, _Spaces(max_length))


def best_fit_few(sizes: Sequence[int], max_length: int, cap: int | None = None) -> list[list[int]]:
    """The fragments of every row, as in `best_fit`, without arrays: faster for few fragments.

    Sizes are from 1 to the max_length; ``cap`` is the most fragments in a row.

    >>> best_fit_few([30, 30, 20, 60, 50, 10], 80)
    [[3, 2], [4, 0], [1, 5]]
    """
    rows: list[list[int]] = []
    spaces: list[tuple[int, int]] = []
    """Free space and number of each row that can take more, tightest and oldest first."""
    smallest, most = min(sizes, default=0), cap or len(sizes)
    for fragment in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        size = sizes[fragment]
        tightest = bisect_left(spaces, (size, 0))
        if tightest < len(spaces):
            space, row = spaces.pop(tightest)
            rows[row].append(fragment)
        else:
            space, row = max_length, len(rows)
            rows.append([fragment])
        if space - size >= smallest and len(rows[row]) < most:
            insort(spaces, (space - size, row))
    return rows


class _Spaces:
    """A set of integers that finds the next larger member: a bit set in two levels.

    A flat bit set would copy ``max_length`` bits per lookup: 16 kB at 131,072.
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


STRATEGY = Strategy(place=best_fit, needs_order=False, runs=best_fit_runs)
