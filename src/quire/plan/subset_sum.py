"""Which of a few sizes fill a space best: subset sums as the bits of one integer."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

# Wider spaces are measured in coarser units: at most one unit in 131,072 is lost per size, and
# a capacity of billions still costs microseconds.
MAX_BITS = 1 << 17


def fullest_subset(sizes: Sequence[int], space: int) -> list[int]:
    """The sizes, each used once at most, whose sum comes closest to the space from below.

    Sizes are tried in the order given, up to the first exact fill, so the early ones are
    preferred. No size may exceed the space. The cost is a shift and an `or` of `space` bits per
    size tried.

    >>> fullest_subset([5, 4, 3, 9], space=7)
    [4, 3]
    >>> fullest_subset([6, 4, 3], space=8)
    [4, 3]
    """
    if not sizes:
        return []
    # In units of the greatest common divisor the best fill is exact, and the search ends at it;
    # without this, sizes that are all even would never fill an odd space and always cost most.
    unit = max(gcd(*sizes), -(-space // MAX_BITS))
    if unit == 1:
        return [sizes[index] for index in _search(sizes, space)]
    coarse = [-(-size // unit) for size in sizes]
    return [sizes[index] for index in _search(coarse, space // unit)]


def _search(sizes: Sequence[int], space: int) -> list[int]:
    # Bit g of `gaps` is set when some subset leaves g places free. Counted from the full end, a
    # size moves gaps to the right and those below zero fall off by themselves.
    gaps = 1 << space
    before = []
    for size in sizes:
        before.append(gaps)
        gaps |= gaps >> size
        if gaps & 1:
            break
    return _trace_back(sizes, before, gaps & -gaps)


def _trace_back(sizes: Sequence[int], before: list[int], gap: int) -> list[int]:
    """The indices, rising, of the sizes that lead to a gap (given as its bit)."""
    chosen = []
    for index in range(len(before) - 1, -1, -1):
        if not before[index] & gap:
            chosen.append(index)
            gap <<= sizes[index]
    chosen.reverse()
    return chosen
