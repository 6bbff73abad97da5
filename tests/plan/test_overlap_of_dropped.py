"""A token in a row is emitted, even if the fragment that first held it was dropped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.plan import PlanOptions, balance, make_plan, plan_documents


def standing(fragments) -> tuple[int, int]:
    """(different tokens, tokens in all) of some fragments."""
    every = [(d, place) for d, start, stop in fragments for place in range(start, stop)]
    return len(set(every)), len(every)


def require_counted(ledger, fragments) -> None:
    different, tokens = standing(fragments)
    assert (ledger.tokens.emitted, ledger.tokens.overlap) == (different, tokens - different)
    ledger.check()


def test_what_a_fragment_repeats_of_an_unsupervised_one_is_emitted():
    options = PlanOptions(max_length=4, stride=1)
    plan = plan_documents([7], options, lambda fragments: fragments.starts > 0)
    assert [tuple(f) for row in plan for f in row] == [(0, 3, 7)]
    tokens = plan.ledger.tokens
    assert (tokens.emitted, tokens.overlap, dict(tokens.dropped)["unsupervised"]) == (4, 0, 3)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=12),
    st.integers(4, 9),
    st.integers(0, 2),
    st.integers(1, 9),
    st.sampled_from(["wrapped", "best_fit", "greedy"]),
    st.sampled_from(["split", "fill"]),
)
def test_short_rows_and_unsupervised_fragments_lose_no_repeated_tokens(
    lengths, max_length, stride, min_length, strategy, overlong
):
    options = PlanOptions(
        max_length=max_length,
        stride=stride,
        min_length=min(min_length, max_length),
        strategy=strategy,
        overlong=overlong,
    )
    plan = plan_documents(lengths, options, lambda f: (f.starts + f.documents) % 3 > 0)
    require_counted(plan.ledger, [tuple(map(int, f)) for row in plan for f in row])


@pytest.mark.parametrize("seed", range(4))
def test_rows_dropped_for_equal_ranks_lose_no_repeated_tokens(seed):
    lengths = np.random.default_rng(seed).integers(1, 40, 20)
    plan = make_plan(lengths, 8, strategy="wrapped", stride=2, shuffle=True, seed=seed)
    dealt = balance(plan, 4, 2)
    rows = list(plan)
    kept = [tuple(map(int, f)) for row in dealt.rows.reshape(-1).tolist() for f in rows[row]]
    assert dealt.ledger.tokens.dropped["rank_equalize"]
    require_counted(dealt.ledger, kept)
