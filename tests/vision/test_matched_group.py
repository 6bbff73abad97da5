"""Groups of a buffer: best-fit decreasing, under ms-swift's name."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import InvalidLengths, InvalidOption
from quire.vision import calculate_matched_group
from quire.vision.grouping import GROUPING_VERSION, group_samples
from quire.vision.options import PackRules
from tests.vision.inputs import best_fit_decreasing

GOLDEN = list(zip("abcdef", [30, 30, 20, 60, 50, 10], strict=True))


def lengths_of(groups):
    return [[length for _, length in group] for group in groups]


def test_the_golden_buffer_gives_two_full_groups_and_carries_the_third():
    groups, carried = calculate_matched_group(GOLDEN, 80, False)
    assert lengths_of(groups) == [[60, 20], [50, 30]]
    assert carried == [("b", 30), ("f", 10)]


def test_a_finished_buffer_carries_nothing():
    groups, carried = calculate_matched_group(GOLDEN, 80)
    assert lengths_of(groups) == [[60, 20], [50, 30], [30, 10]]
    assert carried == []


def test_an_empty_list_of_sequences_has_no_groups():
    assert calculate_matched_group([], 80) == ([], [])
    assert calculate_matched_group([], 80, is_finished=False) == ([], [])


def test_the_signature_is_that_of_ms_swift():
    parameters = inspect.signature(calculate_matched_group).parameters
    assert list(parameters) == ["sequences", "packing_length", "is_finished", "strategy"]
    assert parameters["is_finished"].default is True
    assert parameters["strategy"].default == "binpack"


def test_samples_come_back_as_the_same_objects():
    pairs = [({"input_ids": [n]}, n + 1) for n in range(5)]
    groups, _ = calculate_matched_group(pairs, 6)
    assert {id(pair) for group in groups for pair in group} == {id(pair) for pair in pairs}


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_sequence_longer_than_a_pack_is_a_group_of_its_own_and_leaves_at_once(is_finished):
    groups, carried = calculate_matched_group([("a", 3), ("b", 9), ("c", 8)], 8, is_finished)
    assert groups[:2] == [[("b", 9)], [("c", 8)]]
    assert (groups[2:], carried) == (([[("a", 3)]], []) if is_finished else ([], [("a", 3)]))
    alone, none = calculate_matched_group([("b", 9)], 8, is_finished)
    assert (alone, none) == ([[("b", 9)]], [])


def test_the_sequential_strategy_keeps_the_order_and_carries_the_open_group():
    pairs = list(zip("abcdef", [3, 4, 9, 2, 6, 1], strict=True))
    groups, carried = calculate_matched_group(pairs, 8, is_finished=False, strategy="sequential")
    assert lengths_of(groups) == [[3, 4], [9], [2, 6]]
    assert carried == [("f", 1)]
    groups, carried = calculate_matched_group(pairs, 8, strategy="sequential")
    assert (lengths_of(groups), carried) == ([[3, 4], [9], [2, 6], [1]], [])


def test_the_sequential_strategy_has_nothing_to_carry_when_its_last_group_is_full():
    pairs = [("a", 5), ("b", 3)]
    found = calculate_matched_group(pairs, 8, is_finished=False, strategy="sequential")
    assert found == ([pairs], [])


def test_an_unknown_strategy_is_an_error_that_names_the_known_ones():
    with pytest.raises(InvalidOption, match="unknown strategy 'fifo'; known: binpack, sequential"):
        calculate_matched_group([("a", 3)], 8, strategy="fifo")


@given(st.lists(st.integers(1, 12), max_size=40), st.booleans())
def test_the_sequential_strategy_is_next_fit(lengths, is_finished):
    packs, current = [], []
    for item in enumerate(lengths):
        if sum(length for _, length in [*current, item]) > 8:
            packs += [current] if current else []
            current = []
        current.append(item)
    if current and (is_finished or sum(length for _, length in current) >= 8):
        packs.append(current)
        current = []
    found = calculate_matched_group(list(enumerate(lengths)), 8, is_finished, strategy="sequential")
    assert found == (packs, current)


def test_lengths_that_are_not_integers_are_errors():
    with pytest.raises(InvalidLengths, match="but a length is an integer"):
        calculate_matched_group([("a", 3), ("b", 2.5)], 8)
    with pytest.raises(InvalidLengths, match="sequence 1 has no tokens"):
        calculate_matched_group([("a", 3), ("b", 0)], 8)
    with pytest.raises(InvalidOption, match="packing_length is 0"):
        calculate_matched_group([("a", 3)], 0)


def test_changing_the_groups_requires_a_new_version():
    """These are the groups of version 1; changing them requires a new version."""
    lengths = np.array([37 * n % 397 + 1 for n in range(60)])
    groups = group_samples(lengths.reshape(-1, 1), PackRules(max_length=1000))
    assert GROUPING_VERSION == 1
    assert (groups[0], groups[-1], len(groups)) == ([32, 21, 49], [34, 44, 1, 22, 11], 12)


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(50, 120))
def test_groups_equal_textbook_best_fit_decreasing(lengths, max_length):
    groups, _ = calculate_matched_group(list(enumerate(lengths)), max_length)
    assert [[n for n, _ in group] for group in groups] == best_fit_decreasing(lengths, max_length)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 4), st.integers(0, 9)), max_size=40),
    st.integers(1, 6) | st.none(),
)
def test_no_group_exceeds_any_limit(items, most_documents):
    rules = PackRules(
        max_length=60, max_images=5, max_patches=12, max_documents_per_row=most_documents
    )
    sizes = np.array(items, dtype=np.int64).reshape(-1, 3)
    groups = group_samples(sizes, rules)
    assert sorted(item for group in groups for item in group) == list(range(len(items)))
    for group in groups:
        assert (sizes[group].sum(axis=0) <= rules.limits).all()
        assert len(group) <= (most_documents or len(items))


def test_a_limit_on_only_samples_is_respected():
    groups = group_samples(np.full((10, 1), 1), PackRules(max_length=100, max_documents_per_row=3))
    assert [len(group) for group in groups] == [3, 3, 3, 1]
