"""The exchange of items between rows: exact integers, zones, and every budget."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quire.plan.exchange import Exchange, whole_costs


def run(sizes, costs, limits, zones, num_ranks, start, rounds=8):
    sizes = np.asarray(sizes, dtype=np.int64).reshape(len(costs), -1)
    search = Exchange(sizes, np.asarray(costs), np.asarray(limits), np.asarray(zones), num_ranks)
    return search.run(np.asarray(start), rounds)


def test_a_swap_makes_two_ranks_even():
    slots, value = run([9, 7, 2, 4], [9, 7, 2, 4], [16], [0, 0], 2, [0, 0, 1, 1])
    assert value == 11
    assert np.bincount(slots, [9, 7, 2, 4]).tolist() == [11, 11]


def test_rows_of_similar_cost_share_a_step():
    slots, value = run([8, 8, 1, 1], [8, 8, 1, 1], [8], [0] * 4, 2, [0, 2, 1, 3])
    assert value == 9
    assert [slots[0] // 2, slots[1] // 2] == [0, 0]


def test_items_stay_in_their_zone_and_within_every_budget():
    rng = np.random.default_rng(0)
    sizes = rng.integers(0, 9, (60, 2))
    costs = rng.integers(1, 1000, 60)
    start = rng.permutation(np.repeat(np.arange(12), 5))
    zones = np.repeat([0, 1, 2], 4)
    limits = np.array([np.bincount(start, column).max() for column in sizes.T], dtype=np.int64)
    before = np.bincount(start, costs)
    slots, value = run(sizes, costs, limits, zones, 4, start, rounds=10)
    assert (zones[slots] == zones[start]).all()
    for column, limit in zip(sizes.T, limits, strict=True):
        assert np.bincount(slots, column).max() <= limit
    after = np.bincount(slots, costs, 12).reshape(3, 4)
    assert value == after.max(axis=1).sum() < before.reshape(3, 4).max(axis=1).sum()


@given(st.lists(st.integers(0, 50), min_size=4, max_size=6))
def test_the_value_lies_between_the_optimum_and_the_start(costs):
    number, start = len(costs), np.arange(len(costs)) % 2
    slots, value = run(costs, costs, [200], [0, 0], 2, start)
    options = {
        max(sum(costs[i] for i in order[:k]), sum(costs[i] for i in order[k:]))
        for order in permutations(range(number))
        for k in range(number + 1)
    }
    assert min(options) <= value <= np.bincount(start, costs).max()
    assert value == np.bincount(slots, costs, 2).max()


def test_costs_are_rounded_to_integers_that_do_not_overflow():
    huge = whole_costs(np.full(1 << 12, 1e300), 1 << 11)
    assert 0 < int(huge.sum()) * int(huge.max()) < 1 << 63
    assert whole_costs(np.zeros(3), 2).tolist() == [0, 0, 0]
    tiny = whole_costs(np.array([1e-300, 5e-301]), 1)
    assert abs(tiny[0] - 2 * tiny[1]) <= 1 < tiny[1] >> 20
