"""One suite over every strategy, policy, alignment and cap."""

from __future__ import annotations

import functools
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.plan.options import Overlong
from quire.plan.strategies import BUILT_IN, find_strategy
from tests.contracts.plan_rules import assert_follows_the_rules

CAPACITIES = sorted({1, 2} | {2**k + d for k in range(2, 7) for d in (-1, 0, 1)})


@st.composite
def instances(draw):
    max_length = draw(st.sampled_from(CAPACITIES))
    align = draw(st.sampled_from([k for k in (1, 1, 2, 3, 4) if k <= max_length]))
    space = max_length // align * align
    prefix = draw(st.integers(0, min(2, space - 1)))
    stride = draw(st.integers(0, min(3, space - prefix - 1)))
    options = {
        "max_length": max_length,
        "align": align,
        "prefix": prefix,
        "stride": stride,
        "min_fragment": draw(st.integers(1, max(1, min(4, (space - prefix - stride + 1) // 2)))),
        "max_documents_per_row": draw(st.sampled_from([None, None, 1, 2, 3])),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 3)),
    }
    lengths = draw(st.lists(st.integers(0, 3 * max_length + 1), max_size=24))
    return lengths, options


@pytest.mark.parametrize("overlong", [policy for policy in get_args(Overlong) if policy != "error"])
@pytest.mark.parametrize("strategy", BUILT_IN)
@settings(max_examples=60, deadline=None)
@given(instance=instances())
def test_every_token_is_in_one_row_or_counted_as_dropped(strategy, overlong, instance):
    lengths, options = instance
    plan = quire.make_plan(lengths, strategy=strategy, overlong=overlong, **options)
    assert_follows_the_rules(lengths, plan)
    assert plan.lower_bound <= plan.num_rows


@pytest.mark.parametrize("strategy", BUILT_IN)
@settings(max_examples=60, deadline=None)
@given(instance=instances(), min_length=st.integers(1, 8))
def test_a_row_under_min_length_is_dropped_and_its_tokens_counted(strategy, instance, min_length):
    lengths, options = instance
    min_length = min(min_length, options["max_length"])
    options["shuffle"] = False
    whole = quire.make_plan(lengths, strategy=strategy, **options)
    plan = quire.make_plan(lengths, strategy=strategy, min_length=min_length, **options)
    prefix = options["prefix"]
    tokens = [sum(prefix + f.stop - f.start for f in row) for row in whole]
    long_enough = [row for row, n in zip(whole, tokens, strict=True) if n >= min_length]
    assert list(plan) == long_enough
    lost = whole.ledger.tokens.emitted - plan.ledger.tokens.emitted
    assert plan.ledger.tokens.dropped["row_too_short"] == lost
    survivors = {f.document for row in long_enough for f in row}
    assert plan.ledger.documents.emitted == len(survivors)
    assert plan.ledger.documents.imbalance == plan.ledger.tokens.imbalance == 0


@pytest.mark.parametrize("strategy", BUILT_IN)
@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 12), max_size=9), cap=st.sampled_from([None, 2, 3]))
def test_rows_lie_between_bound_and_optimum(strategy, lengths, cap):
    plan = quire.make_plan(lengths, 12, strategy, max_documents_per_row=cap, overlong="error")
    if find_strategy(strategy).wraps:
        assert plan.num_rows >= -(-sum(lengths) // 12)
        return
    optimum = fewest_rows(tuple(sorted(lengths)), 12, cap or len(lengths))
    bound = quire.lower_bound(lengths, 12, max_documents_per_row=cap)
    assert bound == plan.lower_bound
    assert bound <= optimum <= plan.num_rows


@functools.cache
def fewest_rows(sizes: tuple[int, ...], max_length: int, cap: int) -> int:
    """The optimum by trying every subset as the row of the largest size."""
    if not sizes:
        return 0
    *others, largest = sizes
    best = len(sizes)
    for mask in range(1 << len(others)):
        chosen = [size for i, size in enumerate(others) if mask >> i & 1]
        if largest + sum(chosen) <= max_length and len(chosen) < cap:
            rest = tuple(size for i, size in enumerate(others) if not mask >> i & 1)
            best = min(best, 1 + fewest_rows(rest, max_length, cap))
    return best
