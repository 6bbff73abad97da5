"""Buffered documents are taken by age and by size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.plan.buffer import Buffer


def buffered(sizes: list[int]) -> Buffer[str]:
    buffer: Buffer[str] = Buffer()
    for age, size in enumerate(sizes):
        buffer.append((age, f"document {age}", size))
    return buffer


def test_a_buffer_knows_its_first_smallest_and_largest_size_and_their_sum():
    buffer = buffered([4, 2, 7, 4])
    assert (buffer.first_size, buffer.smallest, buffer.largest) == (4, 2, 7)
    assert (len(buffer), buffer.total) == (4, 17)
    assert [key for _, key, _ in buffer] == [f"document {age}" for age in range(4)]


def test_of_equal_sizes_the_first_in_the_queue_is_taken():
    buffer = buffered([4, 2, 7, 4, 2])
    assert buffer.take(4) == (0, "document 0", 4)
    assert (buffer.first_size, buffer.total, len(buffer)) == (2, 15, 4)
    assert buffer.take(4) == (3, "document 3", 4)
    assert buffer.take(7) == (2, "document 2", 7)
    assert (buffer.smallest, buffer.largest, buffer.total) == (2, 2, 4)
    with pytest.raises(KeyError):
        buffer.take(4)


def test_the_queue_is_in_arrival_order_whatever_the_ages():
    buffer: Buffer[str] = Buffer()
    for document in ((5, "e", 3), (2, "b", 3), (4, "d", 1)):
        buffer.append(document)
    assert buffer.take(3) == (5, "e", 3)
    assert buffer.first_size == 3


def test_many_documents_of_one_size_leave_oldest_first():
    buffer = buffered([3] * 100)
    assert buffer.total == 300
    assert [buffer.take(3)[0] for _ in range(100)] == list(range(100))
    assert not buffer
    assert buffer.total == 0


def test_the_first_sizes_are_those_of_the_head_of_the_queue_that_fit():
    buffer = buffered([4, 9, 2, 7, 1, 7])
    assert list(buffer.first_sizes(5, largest=7)) == [4, 2, 7, 1]
    assert list(buffer.first_sizes(99, largest=3)) == [2, 1]


@pytest.mark.parametrize(
    ("sizes", "space", "picks", "reserve", "chosen"),
    [
        ([5, 3, 2], 10, 9, 0, [5, 3, 2]),
        ([5, 5, 5], 10, 9, 0, [5, 5]),
        ([5, 5, 5], 10, 1, 0, [5]),
        ([5, 5, 5], 14, 9, 0, [5, 5]),
        ([5, 5, 5, 5], 15, 2, 0, [5, 5]),
        ([6, 4, 3, 3], 12, 9, 0, [6, 4]),
        ([6, 4, 3, 3], 12, 1, 0, [6]),
        ([6, 4, 3, 3], 13, 9, 0, [6, 4, 3]),
        ([6, 4, 3, 3], 16, 9, 0, [6, 4, 3, 3]),
        ([3], 2, 9, 0, []),
        ([3], 3, 9, 0, [3]),
        # Reserving room for the smallest in every pick that can follow:
        ([9, 9, 1, 1, 1], 18, 3, 1, [9, 1, 1]),
        ([9, 8, 1, 1], 18, 3, 1, [9, 8, 1]),
        ([8, 8, 1, 1], 18, 3, 1, [8, 8, 1]),
        ([8, 8, 8, 2], 20, 9, 2, [2]),
        ([2, 2, 2, 2], 8, 3, 2, [2, 2, 2]),
        ([5, 5, 5], 9, 9, 5, [5]),
    ],
)
def test_each_pick_is_the_largest_that_fits(sizes, space, picks, reserve, chosen):
    assert buffered(sizes).largest_fit(space, picks, reserve) == chosen


def one_by_one(sizes: list[int], space: int, picks: int) -> list[int]:
    chosen = []
    for size in sorted(sizes, reverse=True):
        if size <= space and len(chosen) < picks:
            chosen.append(size)
            space -= size
    return chosen


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=20),
    space=st.integers(1, 60),
    picks=st.integers(1, 9),
)
def test_picks_equal_those_of_a_pass_over_all_sizes_from_the_largest(sizes, space, picks):
    assert buffered(sizes).largest_fit(space, picks, 0) == one_by_one(sizes, space, picks)
