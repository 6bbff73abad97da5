"""Documents in random order, the next one completed by subset sums over those that follow it.

For rows of many documents: nearly every space is then the sum of some of the next 80, and as they
come in random order, no size runs out before the others. Documents of one size move in blocks of
2^k, so a search makes 2^k equal rows; what is left goes on in blocks of half the size.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np

from quire.plan.build import permutation
from quire.plan.exact.problem import Problem, RowKinds
from quire.plan.exact.scarcest import chosen_sizes
from quire.plan.lengths import IntArray

_WINDOW = 80
"""Blocks that a row is chosen from."""
_BLOCKS = 4000
"""The fewest blocks at the start, if there are enough documents."""
_MOST_FAILURES = 300
"""Searches without an exact fill before this is given up: it is for other lengths."""


def shuffled_rows(problem: Problem) -> tuple[RowKinds, Problem] | None:
    """Rows that are filled exactly, and the documents that are in none; None if it gave up."""
    kinds, failures = RowKinds(), 0
    counts = np.array(problem.counts)
    blocks: IntArray = np.zeros(0, dtype=np.int64)
    times = 1
    while int((counts // (2 * times)).sum()) >= _BLOCKS:
        times *= 2
    while times:
        new = np.repeat(np.arange(len(counts)), counts // times)
        counts %= times
        blocks, failed = _exact_rows(np.append(blocks, _mixed(new, times)), problem, kinds, times)
        failures += failed
        if failures > _MOST_FAILURES:
            return None
        times //= 2
        if times:
            blocks = _mixed(np.repeat(blocks, 2), times)
    return kinds, problem.rest(Counter(blocks.tolist()))


def _mixed(blocks: IntArray, seed: int) -> IntArray:
    mixed: IntArray = blocks[permutation(len(blocks), seed)]
    return mixed


def _exact_rows(
    blocks: IntArray, problem: Problem, kinds: RowKinds, times: int
) -> tuple[IntArray, int]:
    """The blocks that are in no row, and the searches that failed."""
    coming, aside = iter(blocks.tolist()), list[int]()
    window: list[int] = []
    while len(aside) <= _MOST_FAILURES:
        window += islice(coming, _WINDOW - len(window))
        if not window:
            break
        first = window.pop(0)
        row = _fill(window, problem.space - first)
        if row is None or len(row) >= problem.cap:
            aside.append(first)
            continue
        for size in row:
            window.remove(size)
        kinds.add([first, *row], times)
    return np.array([*aside, *window, *coming], dtype=np.int64), len(aside)


def _fill(window: list[int], space: int) -> list[int] | None:
    """Sizes of the window with this sum, early ones if there is a choice; None without one."""
    gaps, before = 1 << space, list[int]()
    for size in window:
        if gaps & 1:
            break
        before.append(gaps)
        gaps |= gaps >> size
    return chosen_sizes(window[: len(before)], before, 1) if gaps & 1 else None
