"""The buffer of an online packer: documents by age and by size, and the row that leaves next.

A row takes the oldest document, then those that fill the rest best: subset sums over the sizes of
the oldest documents, as the bits of one integer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, MutableSequence
from itertools import chain, islice
from math import gcd
from typing import Generic, TypeAlias, TypeVar

Key = TypeVar("Key")

# A document's age (its number in the stream), its key and its size. A plain tuple, because a named
# one takes a quarter of a microsecond longer to make.
Document: TypeAlias = tuple[int, Key, int]

# Only the end of a row is searched, about this many documents; before it they go in as they
# came. It keeps the bit set narrow: for instructions at 131,072, about 1,300 bits.
NUM_SEARCHED = 8

# Larger spaces are measured in coarser units: at most one token in 131,072 is lost per document
# in the row, and a row of billions of tokens costs no more to search than this one.
MAX_BITS = 1 << 17


class Buffer(Generic[Key]):
    """A queue of documents that can also be taken by size, the oldest of equal ones first.

    Adding and taking cost O(log n) plus a move inside the list of distinct sizes, of which there
    are few: n documents, or about sqrt(2 * total) if that is less.
    """

    def __init__(self) -> None:
        self._queue: OrderedDict[int, Document[Key]] = OrderedDict()
        self._ages: dict[int, MutableSequence[int]] = {}
        self._sizes: list[int] = []
        self.total = 0

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Document[Key]]:
        return iter(self._queue.values())

    @property
    def first_size(self) -> int:
        """The size of the document at the head of the queue."""
        return next(iter(self._queue.values()))[2]

    @property
    def smallest(self) -> int:
        """The smallest size in the buffer."""
        return self._sizes[0]

    @property
    def largest(self) -> int:
        """The largest size in the buffer."""
        return self._sizes[-1]

    def append(self, document: Document[Key]) -> None:
        """Add a document at the end of the queue."""
        age, _, size = document
        self._queue[age] = document
        self.total += size
        ages = self._ages.get(size)
        if ages is None:
            self._ages[size] = [age]
            insort(self._sizes, size)
            return
        ages.append(age)
        if len(ages) == 32:
            # Most sizes occur once, and a list is made in a tenth of the time of a deque; but
            # removing the first of 16,000 documents of one token from a list is slow.
            self._ages[size] = deque(ages)

    def take(self, size: int) -> Document[Key]:
        """Remove and return the first document of this size."""
        ages = self._ages[size]
        age = ages[0]
        del ages[0]
        if not ages:
            del self._ages[size]
            del self._sizes[bisect_left(self._sizes, size)]
        self.total -= size
        return self._queue.pop(age)

    def first_sizes(self, number: int, largest: int) -> Iterator[int]:
        """The sizes of the first documents in the queue, except those that are too large."""
        heads = islice(self._queue.values(), number)
        return (size for _, _, size in heads if size <= largest)

    def largest_fit(self, space: int, picks: int, reserve: int) -> list[int]:
        """Sizes to take, each the largest that fits, at most ``picks`` of them.

        Each pick leaves ``reserve`` space for every pick that can still follow.
        """
        chosen: list[int] = []
        sizes, least, end = self._sizes, self._sizes[0], len(self._sizes)
        while picks and space >= least:
            room = space
            if reserve:
                room -= reserve * (min(picks, space // least) - 1)
            end = bisect_right(sizes, room, 0, end) - 1
            if end < 0:
                break
            size = sizes[end]
            repeats = 1
            if size + size - reserve <= room:
                fitting = 1 + (room - size) // max(1, size - reserve)
                repeats = min(picks, fitting, space // size, len(self._ages[size]))
            chosen += [size] * repeats
            picks -= repeats
            space -= repeats * size
        return chosen


def take_row(buffer: Buffer[Key], max_length: int, limit: int) -> list[Key]:
    """Remove the next row from the buffer and return its keys, oldest first.

    No document left in the buffer would fit into the row, unless it holds ``limit`` documents.
    """
    row, space = _take_oldest(buffer, max_length, limit)
    while len(row) < limit and buffer and space >= buffer.smallest:
        sizes = _choose_sizes(buffer, space, limit - len(row), max_length, limit)
        row += [buffer.take(size) for size in sizes]
        space -= sum(sizes)
    row.sort()
    return [key for _, key, _ in row]


def _take_oldest(buffer: Buffer[Key], space: int, limit: int) -> tuple[list[Document[Key]], int]:
    searched = NUM_SEARCHED * buffer.total // len(buffer)
    size = buffer.first_size
    row = [buffer.take(size)]
    space -= size
    while space > searched and len(row) < limit - NUM_SEARCHED and buffer:
        size = buffer.first_size
        if size > space:
            break
        row.append(buffer.take(size))
        space -= size
    return row, space


def _choose_sizes(
    buffer: Buffer[Key], space: int, picks: int, max_length: int, limit: int
) -> list[int]:
    """Sizes to put into the space that a row has left, at most ``picks`` of them."""
    number, total, smallest = len(buffer), buffer.total, buffer.smallest
    # Near the cap a row should hold as many documents as it may, or the small ones pile up until
    # they leave in rows that the cap ends far from full (web lengths, cap 6: 98.0 % instead of
    # 99.9 %).
    near_cap = 2 * total * limit < 3 * max_length * number
    greedy = buffer.largest_fit(space, picks, reserve=smallest if near_cap else 0)
    most = min(picks, space // smallest)
    if most == 1 or most * buffer.largest <= space or (near_cap and len(greedy) == picks):
        return greedy  # it has the largest documents, or as many as the row may hold
    # Documents per row, in eighths: with floats the rows would depend on a machine's rounding.
    eighths = min(8 * max_length * number // total, 8 * limit)
    gap = space - sum(greedy)
    if gap <= _tolerance(eighths, max_length // number):
        return greedy
    num_candidates = 16 + 10 * min(8 * NUM_SEARCHED, eighths) // 8
    candidates: Iterable[int] = buffer.first_sizes(num_candidates, largest=space)
    if limit < max_length:
        candidates = sorted(candidates, reverse=True)  # a few large ones reach a sum
    fullest = fullest_subset(candidates, space)
    return fullest if space - sum(fullest) < gap and len(fullest) <= picks else greedy


def _tolerance(eighths: int, spacing: int) -> int:
    """The gap that largest-fit may leave before subset sums are tried.

    Where two documents fill a row, an exact fill uses up the small documents, and they run out:
    1,000 uniform lengths fill rows to 94.6 % by subset sums alone, to 99.8 % with this. Where
    three or more fill a row there are enough small ones. So the tolerance, a few gaps between
    neighboring sizes, halves with every eighth of a document above two.
    """
    return 12 * spacing >> max(0, eighths - 16)


def fullest_subset(sizes: Iterable[int], space: int) -> list[int]:
    """The sizes, each used at most once, whose sum comes closest to the space from below.

    Sizes are read one by one up to the first exact fill, so early ones are preferred. None may
    exceed the space. The cost is one shift and one `or` of ``space`` bits per size read.

    >>> fullest_subset([5, 4, 3, 9], space=7)
    [4, 3]
    >>> fullest_subset([6, 4, 2], space=9)
    [6, 2]
    """
    unit, unread = _unit(iter(sizes), space)
    if unit == 1:
        read, chosen = _search_subset(unread, space)
    else:
        read = list(unread)
        _, chosen = _search_subset((-(-size // unit) for size in read), space // unit)
    return [read[index] for index in chosen]


def _unit(sizes: Iterator[int], space: int) -> tuple[int, Iterator[int]]:
    """The unit to measure in, and the sizes; reads no more of them than necessary.

    In units of the common divisor the best fill is exact and ends the search. Otherwise sizes
    that are all even would never fill an odd space, and every search would run to the end.
    """
    read = list(islice(sizes, 4))
    unit = gcd(*read)
    if unit != 1:
        read += sizes
        unit = gcd(*read)
    return max(1, unit, -(-space // MAX_BITS)), chain(read, sizes)


def _search_subset(sizes: Iterable[int], space: int) -> tuple[list[int], list[int]]:
    """The sizes that were read, and the increasing indices of those that fill the space best."""
    # Bit g of `gaps` is set if some subset leaves a gap of g. Counted from the full end, a size
    # shifts gaps to the right, and those below zero drop out by themselves.
    gaps = 1 << space
    read, before = [], []
    for size in sizes:
        read.append(size)
        before.append(gaps)
        gaps |= gaps >> size
        if gaps & 1:
            break
    return read, _trace_back(read, before, gaps & -gaps)


def _trace_back(sizes: list[int], before: list[int], gap: int) -> list[int]:
    """The increasing indices of the sizes that lead to a gap (given as its bit)."""
    chosen = []
    for index in range(len(sizes) - 1, -1, -1):
        if not before[index] & gap:
            chosen.append(index)
            gap <<= sizes[index]
    chosen.reverse()
    return chosen
