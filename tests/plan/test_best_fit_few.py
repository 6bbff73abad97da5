"""Best-fit for few fragments gives exactly the rows of the histogram version."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quire.plan.options import PlanOptions
from quire.plan.strategies.best_fit import best_fit, best_fit_few


def by_histogram(sizes, max_length, cap):
    options = PlanOptions(max_length=max_length, max_documents_per_row=cap)
    rows = best_fit(np.array(sizes, dtype=np.int64), max_length, options)
    fragments = rows.fragments.tolist()
    return [fragments[first:end] for first, end in pairwise(rows.offsets.tolist())]


def test_no_fragments_make_no_rows():
    assert best_fit_few([], 8) == []


def test_a_fragment_goes_to_the_tightest_row_and_of_equals_to_the_oldest():
    assert best_fit_few([6, 7, 3], 10) == [[1, 2], [0]]
    assert best_fit_few([8, 8, 2, 2], 10) == [[0, 2], [1, 3]]


def test_a_row_takes_no_more_fragments_than_the_cap():
    assert best_fit_few([1] * 5, 10, cap=2) == [[0, 1], [2, 3], [4]]


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=80),
    st.integers(50, 120),
    st.none() | st.integers(1, 5),
)
def test_rows_are_those_of_the_histogram(sizes, max_length, cap):
    assert best_fit_few(sizes, max_length, cap) == by_histogram(sizes, max_length, cap)
