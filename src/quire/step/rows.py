"""Units into rows: as few rows as best-fit finds, then as many as there are slots.

The exchange that follows works best from rows that leave it some room, and there are two good ways
to use the slots that best-fit leaves over. Both are made; the exchange tells which is better.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush

import numpy as np

from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions
from quire.plan.search.several_budgets import pack_vectors
from quire.plan.strategies.best_fit import best_fit_few
from quire.plan.strategies.exact_fit import exact_fit

_NONE = np.zeros(0, dtype=np.int64)
_FEW = 1024
"""Up to this many units the search for fewer rows takes less than a tenth of a second or so."""
_TRIES = 5
"""Limits that `level_rows` tries."""


def fewest_rows(sizes: IntArray, limits: IntArray, enough: int | None = None) -> IntArray:
    """The row of every unit; ``sizes`` is [units, budgets].

    By best-fit decreasing, or, if that needs more rows than ``enough``, by the search of
    `quire.plan`'s default strategy.

    >>> fewest_rows(np.array([[5], [5], [4], [4], [3], [3]]), np.array([12]))
    array([0, 0, 1, 1, 1, 2])
    >>> fewest_rows(np.array([[5], [5], [4], [4], [3], [3]]), np.array([12]), enough=2)
    array([0, 1, 0, 1, 0, 1])
    """
    if sizes.shape[1] > 1:
        return pack_vectors(sizes, limits, effort="fast") if len(sizes) else _NONE
    rows = _best_fit(sizes[:, 0], int(limits[0]))
    if enough is None or len(sizes) > _FEW or int(rows.max(initial=-1)) < enough:
        return rows
    return _exact_fit(sizes[:, 0], int(limits[0]))


def level_rows(sizes: IntArray, limit: int, num_rows: int) -> IntArray | None:
    """Rows of about equal size: best-fit with the lowest limit that needs at most ``num_rows``.

    Units larger than that limit have a row of their own.

    >>> level_rows(np.array([9, 3, 3, 2, 2]), 10, num_rows=3)
    array([0, 1, 1, 2, 2])
    """
    low, high, best = -(-int(sizes.sum()) // num_rows), limit, None
    trial = min(limit, int(_even_limit(sizes, num_rows) * 1.004) + 1)
    for _ in range(_TRIES):
        rows = _rows_within(sizes, trial)
        if int(rows.max(initial=0)) < num_rows:
            best, high = rows, trial
            break
        low = trial
        trial = min((low + 3 * high) // 4, int(trial * 1.006) + 1)
    return best


def last_rows(
    rows: IntArray, sizes: IntArray, costs: IntArray, limits: IntArray, shape: tuple[int, int]
) -> IntArray | None:
    """The rows, of which the cheapest are divided again among themselves and the empty slots.

    ``shape`` is steps and ranks. The most expensive steps keep their full rows; the cheapest rows
    and the empty ones become whole steps of rows that cost about the same.
    """
    num_steps, num_ranks = shape
    num_rows = int(rows.max(initial=-1)) + 1
    empty = num_steps * num_ranks - num_rows
    if not empty:
        return rows
    by_cost = np.argsort(-np.bincount(rows, costs, num_rows), kind="stable")
    divided = min(num_steps, -(-empty // num_ranks) + 1) * num_ranks
    kept = num_steps * num_ranks - divided
    new = np.empty(num_rows, dtype=np.int64)
    new[by_cost] = np.arange(num_rows)
    moved = np.flatnonzero(new[rows] >= kept)
    placed = evenly(sizes[moved], costs[moved], limits, divided)
    if placed is None:
        return None
    result = new[rows]
    result[moved] = kept + placed
    return result


def evenly(sizes: IntArray, costs: IntArray, limits: IntArray, num_rows: int) -> IntArray | None:
    """Rows by the longest-processing-time rule: the cheapest row that has room; None if none has.

    >>> evenly(np.array([[5], [4], [3]]), np.array([5, 4, 3]), np.array([8]), 2)
    array([0, 1, 1])
    """
    rows = np.empty(len(sizes), dtype=np.int64)
    cheapest = [(0, row) for row in range(num_rows)]
    heapify(cheapest)
    space = [limits.tolist() for _ in range(num_rows)]
    order = np.argsort(-costs, kind="stable").tolist()
    needs, prices = sizes.tolist(), costs.tolist()
    for unit in order:
        full = []
        while cheapest:
            cost, row = heappop(cheapest)
            if all(n <= s for n, s in zip(needs[unit], space[row], strict=True)):
                break
            full.append((cost, row))
        else:
            return None
        rows[unit] = row
        space[row] = [s - n for n, s in zip(needs[unit], space[row], strict=True)]
        heappush(cheapest, (cost + prices[unit], row))
        for item in full:
            heappush(cheapest, item)
    return rows


def largest_first(sizes: IntArray) -> IntArray:
    """The order in which `fit_into` is given the units of a group."""
    order: IntArray = np.lexsort(-sizes.T[::-1])
    return order


def fit_into(space: IntArray, sizes: IntArray) -> IntArray | None:
    """The rows of units by best-fit, in order, taking their space; None if one does not fit."""
    if sizes.shape[1] == 1:
        return _fit_tokens(space, sizes[:, 0].tolist())
    left = space.copy()
    rows = np.empty(len(sizes), dtype=np.int64)
    for unit, size in enumerate(sizes):
        after = left[:, 0] - size[0]
        after[(left < size).any(axis=1)] = np.iinfo(np.int64).max
        row = int(after.argmin())
        if (left[row] < size).any():
            return None
        left[row] -= size
        rows[unit] = row
    space[:] = left
    return rows


def _fit_tokens(space: IntArray, sizes: list[int]) -> IntArray | None:
    """`fit_into` with no budget but tokens, where this takes a tenth of the time."""
    by_space = sorted((left, row) for row, left in enumerate(space[:, 0].tolist()))
    rows = []
    for size in sizes:
        place = bisect_left(by_space, (size, 0))
        if place == len(by_space):
            return None
        left, row = by_space.pop(place)
        insort(by_space, (left - size, row))
        rows.append(row)
    for left, row in by_space:
        space[row] = left
    return np.array(rows, dtype=np.int64)


def _best_fit(sizes: IntArray, limit: int) -> IntArray:
    rows = np.zeros(len(sizes), dtype=np.int64)
    positive = np.flatnonzero(sizes)
    packed = best_fit_few(sizes[positive].tolist(), limit)
    counts = [len(row) for row in packed]
    members = np.fromiter((unit for row in packed for unit in row), np.int64, len(positive))
    rows[positive[members]] = np.repeat(np.arange(len(packed)), counts)
    return rows


def _exact_fit(sizes: IntArray, limit: int) -> IntArray:
    rows = np.zeros(len(sizes), dtype=np.int64)
    positive = np.flatnonzero(sizes)
    packed = exact_fit(sizes[positive], limit, PlanOptions(max_length=limit))
    rows[positive[packed.fragments]] = np.repeat(np.arange(len(packed.counts)), packed.counts)
    return rows


def _rows_within(sizes: IntArray, limit: int) -> IntArray:
    """Rows by best-fit, larger units alone."""
    alone = np.flatnonzero(sizes > limit)
    others = np.flatnonzero(sizes <= limit)
    rows = np.empty(len(sizes), dtype=np.int64)
    rows[alone] = np.arange(len(alone))
    rows[others] = _best_fit(sizes[others], limit) + len(alone)
    return rows


def _even_limit(sizes: IntArray, num_rows: int) -> float:
    """The tokens of each row if units could be cut, those larger than that having their own row."""
    decreasing = np.sort(sizes)[::-1]
    rest = int(sizes.sum()) - np.append(0, np.cumsum(decreasing))
    rows = np.maximum(num_rows - np.arange(len(rest)), 1)
    mean = rest / rows
    return float(mean[np.argmax(np.append(decreasing, 0) <= mean)])
