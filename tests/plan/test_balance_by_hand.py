"""Rows are assigned as by a plain loop over rows, cells and steps."""

from __future__ import annotations

import random
from itertools import chain

import pytest

import quire


def balanced_by_hand(rows: list[int], costs: list[int], ranks: int, per_rank: int) -> list:
    """The steps of one window: a list of cells, each a list of rows, for every step."""
    cells: list[list[int]] = [[] for _ in range(len(rows) // per_rank)]
    for row in sorted(rows, key=lambda row: -costs[row]):
        open_cells = [cell for cell in cells if len(cell) < per_rank]
        min(open_cells, key=lambda cell: load(cell, costs)).append(row)
    cells.sort(key=lambda cell: -load(cell, costs))
    steps = [cells[first : first + ranks] for first in range(0, len(cells), ranks)]
    steps.sort(key=lambda step: min(chain.from_iterable(step)))
    return [[sorted(cell) for cell in step] for step in steps]


def load(cell: list[int], costs: list[int]) -> int:
    return sum(costs[row] for row in cell)


def slowest(steps: list, costs: list[int]) -> int:
    return sum(max(load(cell, costs) for cell in step) for step in steps)


@pytest.mark.parametrize("seed", range(40))
def test_rows_are_assigned_as_computed_by_hand(seed):
    rng = random.Random(seed)
    ranks, per_rank, window = rng.randint(1, 4), rng.randint(1, 4), rng.randint(1, 20)
    step = ranks * per_rank
    costs = [rng.randint(0, 5) for _ in range(step * rng.randint(1, 30))]
    expected = []
    for first in range(0, len(costs), step * window):
        rows = list(range(len(costs)))[first : first + step * window]
        expected += balanced_by_hand(rows, costs, ranks, per_rank)
    balanced = quire.balance(costs, ranks, per_rank, window=window)
    in_order = [
        [list(range(first + k * per_rank, first + (k + 1) * per_rank)) for k in range(ranks)]
        for first in range(0, len(costs), step)
    ]
    mean = sum(costs) / ranks
    assert balanced.before == pytest.approx(slowest(in_order, costs) / mean)
    if slowest(expected, costs) > slowest(in_order, costs):
        expected = in_order
    assert balanced.rows.tolist() == expected
    assert balanced.after == pytest.approx(slowest(expected, costs) / mean)
