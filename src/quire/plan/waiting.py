"""The documents that wait for a row, found by age and by size."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from collections.abc import Iterator, MutableSequence
from itertools import islice
from typing import Generic, TypeAlias, TypeVar

Key = TypeVar("Key")

# A document's age (its number in the stream), its key, the places it takes. A bare tuple, as a
# named one takes a quarter of a microsecond more to make.
Waiter: TypeAlias = tuple[int, Key, int]


class Waiting(Generic[Key]):
    """A queue that also gives up documents by size, of equal ones the first in the queue.

    Adding and taking cost O(log n) plus a move inside the list of distinct sizes, of which
    there are few: n documents, or about sqrt(2 * total) where that is less.
    """

    def __init__(self) -> None:
        self._queue: OrderedDict[int, Waiter[Key]] = OrderedDict()
        self._ages: dict[int, MutableSequence[int]] = {}
        self._sizes: list[int] = []
        self.total = 0

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Waiter[Key]]:
        return iter(self._queue.values())

    @property
    def first_size(self) -> int:
        """The size of the document at the head of the queue."""
        return next(iter(self._queue.values()))[2]

    @property
    def smallest(self) -> int:
        """The smallest size that waits."""
        return self._sizes[0]

    @property
    def largest(self) -> int:
        """The largest size that waits."""
        return self._sizes[-1]

    def append(self, document: Waiter[Key]) -> None:
        """Puts a document at the end of the queue."""
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
            # Most sizes wait once, and a list is made in a tenth of the time of a deque; but
            # 16,000 documents of one token are a long list to remove the first of.
            self._ages[size] = deque(ages)

    def take(self, size: int) -> Waiter[Key]:
        """Removes the first document of this size."""
        ages = self._ages[size]
        age = ages[0]
        del ages[0]
        if not ages:
            del self._ages[size]
            del self._sizes[bisect_left(self._sizes, size)]
        self.total -= size
        return self._queue.pop(age)

    def first_sizes(self, number: int, largest: int) -> Iterator[int]:
        """The sizes of the first documents in the queue, without those that are too large."""
        heads = islice(self._queue.values(), number)
        return (size for _, _, size in heads if size <= largest)

    def largest_fit(self, space: int, picks: int, reserve: int) -> list[int]:
        """Sizes to take, each the largest that fits, at most `picks` of them.

        Each pick leaves `reserve` places for every pick that can still follow.
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
