"""Subset sums by bit set equal those of trying every subset."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.plan import buffer
from quire.plan.buffer import fullest_subset


@pytest.mark.parametrize(
    ("sizes", "space", "chosen"),
    [
        ([], 5, []),
        ([], 0, []),
        ([5], 5, [5]),
        ([3, 4], 6, [4]),
        ([3, 3, 3], 6, [3, 3]),
        ([1, 2, 3, 4], 4, [1, 3]),  # the early 1 and 3, not the late 4
        ([6, 4, 2], 9, [6, 2]),
        ([4096] * 9, 32_767, [4096] * 7),
    ],
)
def test_the_fullest_subset_of_small_cases(sizes: list[int], space: int, chosen: list[int]):
    assert fullest_subset(sizes, space) == chosen


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 30), max_size=9), st.integers(30, 90), st.integers(1, 7))
def test_no_subset_is_fuller(sizes: list[int], space: int, factor: int):
    sizes = [size * factor for size in sizes]
    sums = {sum(c) for n in range(len(sizes) + 1) for c in combinations(sizes, n)}
    space *= max(1, factor - 1)  # often not a multiple of the common divisor
    sizes = [size for size in sizes if size <= space]
    chosen = fullest_subset(sizes, space)
    assert sum(chosen) == max(total for total in sums if total <= space)
    unused = list(sizes)
    for size in chosen:
        unused.remove(size)


def test_sizes_are_read_no_further_than_an_exact_fill():
    sizes = iter([5, 4, 3, 9, 1, 1])
    assert fullest_subset(sizes, 12) == [5, 4, 3]
    assert list(sizes) == [1, 1]  # a few are read ahead


def test_sizes_with_a_common_divisor_are_searched_only_to_their_best_fill(monkeypatch):
    steps = []
    trace_back = buffer._trace_back
    monkeypatch.setattr(
        buffer, "_trace_back", lambda *given: steps.append(len(given[0])) or trace_back(*given)
    )
    assert sum(fullest_subset([14, 28, 42] * 30, 1001)) == 994
    assert fullest_subset([14, 28, 42] * 30 + [1], 1001)[-1] == 1  # control: divisor 1
    assert steps[0] < 40 < steps[1]


def test_a_space_wider_than_the_bitset_is_never_overfilled():
    unit = 1000
    sizes = [1000 * unit + 999, 1000 * unit + 998] * 66
    chosen = fullest_subset(sizes, buffer.MAX_BITS * unit)
    assert len(chosen) == 130  # in units rounded down, 131 would seem to fit


def test_a_space_wider_than_the_bitset_loses_at_most_a_unit_per_size():
    sizes = [7 * 10**8 + 1, 9 * 10**8 + 1, 8 * 10**8 + 3, 6 * 10**8 - 5]
    for count in range(1, 5):
        space = sum(sizes[-count:])
        unit = -(-space // buffer.MAX_BITS)
        exact = [size for size in sizes if size <= space]
        assert 0 <= space - sum(fullest_subset(exact, space + count * unit)) <= count * unit
