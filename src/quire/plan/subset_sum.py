"""Which of some sizes fill a space best: subset sums as the bits of one integer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from math import gcd

# Wider spaces are measured in coarser units: at most one place in 131,072 is lost for a size
# that is used, and a capacity of billions costs no more than this one.
MAX_BITS = 1 << 17


def fullest_subset(sizes: Iterable[int], space: int) -> list[int]:
    """The sizes, each used once at most, whose sum comes closest to the space from below.

    Sizes are read one by one, up to the first exact fill, so early ones are preferred. None may
    exceed the space. The cost is a shift and an `or` of `space` bits for every size read.

    >>> fullest_subset([5, 4, 3, 9], space=7)
    [4, 3]
    >>> fullest_subset([6, 4, 2], space=9)
    [6, 2]
    """
    unit, unread = _unit(iter(sizes), space)
    if unit == 1:
        read, chosen = _search(unread, space)
    else:
        read = list(unread)
        _, chosen = _search((-(-size // unit) for size in read), space // unit)
    return [read[index] for index in chosen]


def _unit(sizes: Iterator[int], space: int) -> tuple[int, Iterator[int]]:
    """The unit to measure in, and the sizes, of which no more are read than it takes.

    In units of the common divisor the best fill is exact and the search ends there; else sizes
    that are all even would never fill an odd space, and every row would be searched to the end.
    """
    read = list(islice(sizes, 4))
    unit = gcd(*read)
    if unit != 1:
        read += sizes
        unit = gcd(*read)
    return max(1, unit, -(-space // MAX_BITS)), chain(read, sizes)


def _search(sizes: Iterable[int], space: int) -> tuple[list[int], list[int]]:
    """The sizes that were read, and the indices, rising, of those that fill the space best."""
    # Bit g of `gaps` is set when some subset leaves g places free. Counted from the full end, a
    # size moves gaps to the right, and those below zero fall off by themselves.
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
    """The indices, rising, of the sizes that lead to a gap (given as its bit)."""
    chosen = []
    for index in range(len(sizes) - 1, -1, -1):
        if not before[index] & gap:
            chosen.append(index)
            gap <<= sizes[index]
    chosen.reverse()
    return chosen
