"""Sizes as a histogram, and rows as runs of equal ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.plan import histogram
from quire.plan.histogram import decreasing_order, distinct_sizes, rows_from_runs


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(histogram, "_CHUNK", 4)


def test_fragments_are_ordered_from_the_largest_size_down():
    assert decreasing_order(np.array([3, 5, 3, 1, 5, 3], np.uint16)).tolist() == [1, 4, 0, 2, 5, 3]


def test_no_sizes_have_an_empty_histogram_and_order():
    none = np.zeros(0, np.uint16)
    assert [len(part) for part in distinct_sizes(none)] == [0, 0]
    assert decreasing_order(none).tolist() == []


@pytest.mark.parametrize(
    "sizes",
    [
        [0xFFFF, 1, 0xFFFF, 0],
        [0x10000, 0xFFFF, 0, 0x10000, 1],  # one bit more
        [1 << 16, 3, (1 << 16) + 2, 3, 1 << 16, (1 << 17) + 1],
        [(1 << 32) + 5, 1 << 16, 7, (1 << 32) + 5, (1 << 33) + 1, 7, (1 << 48) + 2, 1 << 48],
        [1 << 60, 5, 1 << 48, 5, (1 << 60) + 1, 1 << 31, 1 << 62],
        [(1 << 60) + 1, (1 << 60) + 2, 1 << 62],  # a float could not tell the first two apart
    ],
)
def test_sizes_of_any_width_are_sorted_and_equal_ones_keep_their_order(sizes):
    order = decreasing_order(np.array(sizes))
    assert order.tolist() == sorted(range(len(sizes)), key=lambda i: -sizes[i])
    distinct, counts = distinct_sizes(np.array(sizes))
    assert distinct.tolist() == sorted(set(sizes))
    assert counts.tolist() == [sizes.count(size) for size in distinct.tolist()]


@pytest.mark.parametrize("large", [0, 1 << 20, 1 << 40])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32, np.int64, np.uint64])
def test_many_equal_sizes_keep_their_order(large, dtype):
    """Fifty are enough for numpy's unstable sorts to mix them."""
    sizes = np.tile(np.array([2, 1, 2, 3, 2], np.int64), 20)
    sizes = np.append(sizes, np.array([large]).astype(dtype).astype(np.int64)).astype(dtype)
    expected = sorted(range(len(sizes)), key=lambda i: -int(sizes[i]))
    assert decreasing_order(sizes).tolist() == expected


@pytest.mark.parametrize(
    ("sizes", "distinct", "counts"),
    [
        ([], [], []),
        ([0], [0], [1]),
        ([4, 4, 2], [2, 4], [1, 2]),  # as large as a chunk
        ([5, 5, 2], [2, 5], [1, 2]),  # larger
        ([1, 3, 1, 2, 1, 5, 3, 1, 3], [1, 2, 3, 5], [4, 1, 3, 1]),  # three chunks
        ([1 << 62, 3], [3, 1 << 62], [1, 1]),
    ],
)
def test_sizes_are_counted_by_the_chunk_or_sorted(small_chunks, sizes, distinct, counts):
    found, how_many = distinct_sizes(
        np.array(sizes, np.uint64 if max(sizes, default=0) > 9 else np.uint16)
    )
    assert found.tolist() == distinct
    assert how_many.tolist() == counts
    assert found.dtype == how_many.dtype == np.int64


def test_runs_may_go_to_rows_that_already_hold_fragments():
    # Rows 0 to 2 get two each; row 1 another; rows 0 and 1 one more each; row 3 is new.
    runs = [0, 3, 2, 0, 1, 1, 1, 2, 3, 1, 2, 0, 0, 1, 1, 2, 1, 1, 1, 3]
    rows = rows_from_runs(np.arange(10, 21), runs, num_rows=4)
    assert rows.fragments.tolist() == [10, 11, 19, 12, 13, 16, 20, 14, 15, 17, 18]
    assert rows.offsets.tolist() == [0, 3, 7, 9, 11]
    assert rows.fragments.dtype == np.int32
    assert rows.offsets.dtype == np.int64


def test_a_run_longer_than_a_chunk_is_moved_at_once(small_chunks):
    runs = [0, 1, 3, 0, 1, 3, 2, 0, 4, 1, 1, 0]
    rows = rows_from_runs(np.arange(10), runs, num_rows=5)
    assert rows.fragments.tolist() == list(range(10))
    assert rows.offsets.tolist() == [0, 3, 5, 7, 9, 10]


def test_no_runs_make_no_rows():
    rows = rows_from_runs(np.zeros(0, np.int64), [], num_rows=0)
    assert (rows.fragments.tolist(), rows.offsets.tolist()) == ([], [0])


@given(
    deals=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(1, 3)), max_size=12),
    chunk=st.integers(1, 9),
)
def test_runs_moved_in_chunks_equal_runs_moved_one_by_one(deals, chunk):
    runs, rows, order = [], [], []
    for wanted, count, per_row in deals:
        alike = {len(row) for row in rows[wanted : wanted + count]}
        first = wanted if wanted + count <= len(rows) and len(alike) == 1 else len(rows)
        rows += [[] for _ in range(first + count - len(rows))]
        runs += [first, count, per_row, len(rows[first])]
        for row in rows[first : first + count]:
            taken = range(len(order), len(order) + per_row)
            row += [number + 100 for number in taken]
            order += row[-per_row:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram, "_CHUNK", chunk)
        found = rows_from_runs(np.array(order, np.int64), runs, len(rows))
    assert found.fragments.tolist() == [number for row in rows for number in row]
    assert found.counts.tolist() == [len(row) for row in rows]
