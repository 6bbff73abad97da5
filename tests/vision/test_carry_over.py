"""The carry-over buffer: who leaves, who waits, and for how long."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quire.vision.budgets import Budgets
from quire.vision.carry_over import CarryOver


def buffer(lengths=(), *, tokens=80, ratio=0.6, size=512, **budgets):
    carry = CarryOver(Budgets(tokens=tokens, **budgets), ratio, size)
    carry.add(np.arange(len(lengths)), np.array(lengths, dtype=np.int64))
    return carry


def taken(groups):
    return [group.positions for group in groups]


def test_the_golden_buffer_emits_two_groups_and_carries_the_third():
    carry = buffer([30, 30, 20, 60, 50, 10])
    groups = carry.take_groups()
    assert taken(groups) == [(0, 4), (2, 3)]
    assert [group.tokens for group in groups] == [80, 80]
    assert carry.positions.tolist() == [1, 5]


def test_every_underfilled_group_is_carried_not_the_last_alone():
    carry = buffer([45, 45, 45], tokens=80, ratio=0.6)
    assert taken(carry.take_groups()) == []
    assert carry.positions.tolist() == [0, 1, 2]


def test_a_sample_that_was_carried_twice_leaves_whatever_the_fill():
    carry = buffer([10], ratio=1.0)
    assert carry.take_groups() == []
    assert carry.take_groups() == []
    assert taken(carry.take_groups()) == [(0,)]


def test_a_fill_that_equals_the_ratio_is_enough():
    assert taken(buffer([52], ratio=0.65).take_groups()) == [(0,)]
    assert taken(buffer([51], ratio=0.65).take_groups()) == []


def test_the_end_drops_the_last_underfilled_group_and_emits_the_others():
    groups, dropped = buffer([45, 45, 45], ratio=0.6).finish(drop_last=True)
    assert taken(groups) == [(0,), (1,)]
    assert dropped.positions == (2,)


def test_the_end_without_drop_last_emits_everything():
    groups, dropped = buffer([45, 45, 45], ratio=0.6).finish(drop_last=False)
    assert taken(groups) == [(0,), (1,), (2,)]
    assert dropped is None


def test_the_end_drops_no_group_that_is_full_enough():
    groups, dropped = buffer([60, 60], ratio=0.6).finish(drop_last=True)
    assert taken(groups) == [(0,), (1,)]
    assert dropped is None


def test_a_long_sample_stands_alone_in_the_place_of_its_turn():
    groups = buffer([50, 80, 50, 200, 30, 30], ratio=0.6).take_groups()
    assert taken(groups) == [(0, 4), (1,), (2, 5), (3,)]
    assert [group.single_long for group in groups] == [False, True, False, True]


def test_a_group_that_is_full_of_images_is_not_underfilled():
    carry = CarryOver(Budgets(tokens=1000, images=4), 0.65, 512)
    carry.add(np.arange(3), np.array([[10, 2], [10, 2], [10, 1]]))
    assert taken(carry.take_groups()) == [(0, 1)]
    assert carry.positions.tolist() == [2]


def test_a_sample_over_a_limit_of_images_stands_alone_and_is_not_cut():
    carry = CarryOver(Budgets(tokens=1000, images=4), 0.65, 512)
    carry.add(np.arange(2), np.array([[10, 9], [900, 1]]))
    assert [group.single_long for group in carry.take_groups()] == [True, False]


def test_there_is_always_room_for_one_more_sample_behind_those_that_waited():
    carry = buffer([45] * 4, size=4)
    carry.carries += 1
    assert carry.room == 1
    assert buffer([45], size=4).room == 3


def test_a_buffer_that_new_samples_filled_has_room_for_none():
    carry = buffer([45] * 4, size=4)
    carry.carries[:3] = 1
    assert carry.room == 0


@given(st.lists(st.integers(1, 100), max_size=200), st.integers(1, 20), st.floats(0.01, 1.0))
def test_nobody_is_in_more_than_three_buffers(lengths, size, ratio):
    carry = CarryOver(Budgets(tokens=80), ratio, size)
    entered, rounds, left = {}, 0, []
    while lengths:
        new, lengths = lengths[: carry.room], lengths[carry.room :]
        first = len(entered)
        entered |= {first + n: rounds for n in range(len(new))}
        carry.add(np.arange(first, first + len(new)), np.array(new, dtype=np.int64))
        for group in carry.take_groups():
            left += group.positions
            assert all(rounds - entered[position] <= 2 for position in group.positions)
        assert all(rounds - entered[position] < 2 for position in carry.positions.tolist())
        rounds += 1
    assert sorted(left + carry.positions.tolist()) == list(range(len(entered)))
