"""Runs of open rows, for best-fit and first-fit, equal the textbook."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from quire.plan.histogram import rows_from_runs
from quire.plan.strategies.best_fit import best_fit_runs
from quire.plan.strategies.first_fit import first_fit_runs
from tests.plan.textbook import decreasing_fit

FILLS = {"best": best_fit_runs, "first": first_fit_runs}


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
def test_no_sizes_make_no_runs(fill):
    assert fill([], [], 10, 3) == ([], 0)


@pytest.mark.parametrize(
    ("sizes", "counts", "cap", "runs", "num_rows"),
    [
        # A run: the first row, how many rows, how many fragments each gets, how many it holds.
        ([3], [7], 9, [[0, 2, 3, 0], [2, 1, 1, 0]], 3),
        ([3], [6], 9, [[0, 2, 3, 0]], 2),
        ([3], [7], 2, [[0, 3, 2, 0], [3, 1, 1, 0]], 4),
        # The 4s leave three rows of 2 and one of 6; the 2s fill the three, and some of the one.
        (
            [4, 2],
            [7, 5],
            9,
            [[0, 3, 2, 0], [3, 1, 1, 0], [0, 3, 1, 2], [3, 1, 2, 1]],
            4,
        ),
        # Of three rows with 2 left, two get a 2, and the third a 1 later.
        ([8, 2, 1], [3, 2, 3], 9, [[0, 3, 1, 0], [0, 2, 1, 1], [2, 1, 2, 1], [3, 1, 1, 0]], 4),
        # A row with two fragments takes one more under a cap of three.
        ([4, 1], [2, 3], 3, [[0, 1, 2, 0], [0, 1, 1, 2], [1, 1, 2, 0]], 2),
    ],
)
@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
def test_fragments_of_one_size_go_to_runs_of_equal_rows(fill, sizes, counts, cap, runs, num_rows):
    found, rows = fill(sizes, counts, 10, cap)
    assert np.array(found).reshape(-1, 4).tolist() == runs
    assert rows == num_rows


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("which", FILLS)
def test_few_sizes_many_times_give_the_rows_of_the_textbook(which, seed):
    rng = random.Random(seed)
    for _ in range(12):
        sizes = sorted(rng.sample(range(1, 21), rng.randint(1, 6)), reverse=True)
        lengths = sorted(rng.choices(sizes, k=rng.randint(1, 40)), reverse=True)
        counts = Counter(lengths)
        present, cap = [size for size in sizes if counts[size]], rng.choice([40, 2, 3, 4])
        runs, num_rows = FILLS[which](present, [counts[size] for size in present], 20, cap)
        rows = rows_from_runs(np.arange(len(lengths)), runs, num_rows)
        parts = np.split(rows.fragments, rows.offsets[1:-1])
        textbook = decreasing_fit(lengths, 20, cap, best=which == "best")
        assert [part.tolist() for part in parts] == textbook


def test_rows_that_return_to_a_free_space_stay_older_than_later_rows_with_it():
    # Rows 0 to 3 and row 4 have a space of six. The 4 goes to row 0, and the others come back.
    runs, num_rows = first_fit_runs([24, 12, 4, 3, 1], [4, 2, 1, 3, 3], 30, 99)
    lengths = [24] * 4 + [12] * 2 + [4] + [3] * 3 + [1] * 3
    rows = rows_from_runs(np.arange(len(lengths)), runs, num_rows)
    parts = np.split(rows.fragments, rows.offsets[1:-1])
    assert [part.tolist() for part in parts] == decreasing_fit(lengths, 30, 99, best=False)
