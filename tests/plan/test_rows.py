"""Rows from row numbers, and a shuffle that is the same everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from quire.plan.build import permutation
from quire.plan.fragments import Rows


@pytest.mark.parametrize(
    ("numbers", "fragments", "offsets"),
    [
        ([], [], [0]),
        ([0], [0], [0, 1]),
        ([1, 0, 1], [1, 0, 2], [0, 1, 3]),
        ([5, -3, 5, 0, -3], [1, 4, 3, 0, 2], [0, 2, 3, 5]),  # unused numbers are skipped
        ([2, 1] * 20, [*range(1, 40, 2), *range(0, 40, 2)], [0, 20, 40]),  # in order
    ],
)
def test_fragments_come_row_by_row_and_keep_their_order(numbers, fragments, offsets):
    rows = Rows.of_row_numbers(np.array(numbers, dtype=np.int64))
    assert rows.fragments.tolist() == fragments
    assert rows.offsets.tolist() == offsets
    assert rows.offsets.dtype == np.int64
    assert rows.counts.tolist() == np.diff(offsets).tolist()


@pytest.mark.parametrize(
    ("seed", "order"),
    [
        (0, [3, 2, 1, 8, 6, 0, 7, 4, 5]),
        (1, [2, 4, 7, 5, 0, 8, 6, 3, 1]),
        (2**70, [6, 7, 2, 5, 0, 4, 8, 3, 1]),
    ],
)
def test_a_seed_gives_the_same_order_under_any_numpy(seed, order):
    assert permutation(9, seed).tolist() == order


def test_a_shuffle_holds_everything_once():
    assert permutation(0, 3).tolist() == []
    assert sorted(permutation(1000, 3).tolist()) == list(range(1000))
    assert permutation(50, None).tolist() != permutation(50, None).tolist()
