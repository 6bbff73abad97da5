"""The buffer: which groups leave, which samples wait, and for how long."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quire.vision.grouping import PackBuffer
from quire.vision.options import PackRules


def buffered(lengths=(), *, max_length=80, ratio=0.6, size=512, **rules):
    rules = PackRules(max_length=max_length, min_fill=ratio, buffer_size=size, **rules)
    buffer = PackBuffer(rules)
    sizes = np.array(lengths, dtype=np.int64).reshape(-1, len(rules.measures))
    buffer.add(np.arange(len(sizes)), sizes)
    return buffer


def taken(groups):
    return [group.positions for group in groups]


def test_the_golden_buffer_emits_two_groups_and_carries_the_third():
    buffer = buffered([30, 30, 20, 60, 50, 10])
    groups = buffer.take_groups()
    assert taken(groups) == [(0, 4), (2, 3)]
    assert [group.tokens for group in groups] == [80, 80]
    assert buffer.positions.tolist() == [1, 5]


def test_every_underfilled_group_is_carried_not_only_the_last():
    buffer = buffered([45, 45, 45], max_length=80, ratio=0.6)
    assert taken(buffer.take_groups()) == []
    assert buffer.positions.tolist() == [0, 1, 2]


def test_a_sample_that_was_carried_twice_leaves_regardless_of_fill():
    buffer = buffered([10], ratio=1.0)
    assert buffer.take_groups() == []
    assert buffer.take_groups() == []
    assert taken(buffer.take_groups()) == [(0,)]


def test_a_fill_that_equals_the_ratio_is_enough():
    assert taken(buffered([52], ratio=0.65).take_groups()) == [(0,)]
    assert taken(buffered([51], ratio=0.65).take_groups()) == []


def test_the_end_drops_the_last_underfilled_group_and_emits_the_others():
    groups, dropped = buffered([45, 45, 45], ratio=0.6).finish()
    assert taken(groups) == [(0,), (1,)]
    assert dropped.positions == (2,)


def test_the_end_without_drop_last_emits_everything():
    groups, dropped = buffered([45, 45, 45], ratio=0.6, drop_last=False).finish()
    assert taken(groups) == [(0,), (1,), (2,)]
    assert dropped is None


def test_the_end_keeps_groups_that_are_full_enough():
    groups, dropped = buffered([60, 60], ratio=0.6).finish()
    assert taken(groups) == [(0,), (1,)]
    assert dropped is None


def test_a_long_sample_gets_its_own_pack_and_keeps_its_position():
    groups = buffered([50, 80, 50, 200, 30, 30], ratio=0.6).take_groups()
    assert taken(groups) == [(0, 4), (1,), (2, 5), (3,)]
    assert [group.single_long for group in groups] == [False, True, False, True]


def test_a_group_that_is_full_of_images_is_not_underfilled():
    sizes = [[10, 2], [10, 2], [10, 1]]
    buffer = buffered(sizes, max_length=1000, ratio=0.65, max_images=4)
    assert taken(buffer.take_groups()) == [(0, 1)]
    assert buffer.positions.tolist() == [2]


def test_a_sample_over_the_image_limit_gets_its_own_pack_and_is_not_cut():
    buffer = buffered([[10, 9], [900, 1]], max_length=1000, ratio=0.65, max_images=4)
    assert [group.single_long for group in buffer.take_groups()] == [True, False]


def test_there_is_always_room_for_one_new_sample():
    buffer = buffered([45] * 4, size=4)
    buffer.carries += 1
    assert buffer.room == 1
    assert buffered([45], size=4).room == 3


def test_a_buffer_full_of_new_samples_has_no_room():
    buffer = buffered([45] * 4, size=4)
    buffer.carries[:3] = 1
    assert buffer.room == 0


@given(st.lists(st.integers(1, 100), max_size=200), st.integers(1, 20), st.floats(0.01, 1.0))
def test_no_sample_is_in_more_than_three_buffers(lengths, size, ratio):
    buffer = buffered(ratio=ratio, size=size)
    entered, rounds, left = {}, 0, []
    while lengths:
        new, lengths = lengths[: buffer.room], lengths[buffer.room :]
        first = len(entered)
        entered |= {first + n: rounds for n in range(len(new))}
        buffer.add(np.arange(first, first + len(new)), np.array(new, dtype=np.int64))
        for group in buffer.take_groups():
            left += group.positions
            assert all(rounds - entered[position] <= 2 for position in group.positions)
        assert all(rounds - entered[position] < 2 for position in buffer.positions.tolist())
        rounds += 1
    assert sorted(left + buffer.positions.tolist()) == list(range(len(entered)))
