from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from quire.errors import InvalidOption


def web_plan(rows: int = 600) -> quire.Plan:
    lengths = np.random.default_rng(0).lognormal(6.3, 1.1, rows * 5).astype(int) + 1
    return quire.make_plan(lengths, 2048, shuffle=True)


def test_the_costliest_row_goes_to_the_least_loaded_rank():
    balanced = quire.balance([1, 1, 9, 9], num_ranks=2, rows_per_rank=2)
    assert balanced.rows.tolist() == [[[0, 2], [1, 3]]]
    assert balanced.before == 1.8
    assert balanced.after == 1.0


@settings(max_examples=100, deadline=None)
@given(
    costs=st.lists(st.integers(0, 50), max_size=60),
    ranks=st.integers(1, 4),
    per_rank=st.integers(1, 3),
    window=st.integers(1, 4),
)
def test_each_step_keeps_its_rows_and_a_window_keeps_its_steps(costs, ranks, per_rank, window):
    balanced = quire.balance(costs, ranks, per_rank, window=window)
    step = ranks * per_rank
    kept = len(costs) // step * step
    assert balanced.rows.shape == (kept // step, ranks, per_rank)
    for first in range(0, kept, step * window):
        steps = balanced.rows[first // step : first // step + window]
        expected = range(first, min(first + step * window, kept))
        assert sorted(steps.ravel()) == list(expected)
    assert balanced.ledger.check().documents.dropped["rank_equalize"] == len(costs) - kept
    assert balanced.after <= balanced.before


def test_rows_that_are_even_by_chance_stay_even():
    balanced = quire.balance([9, 1, 7, 5, 5, 7], num_ranks=2, rows_per_rank=3)
    assert balanced.before == balanced.after == 1.0


def test_balancing_evens_out_attention_cost():
    plan = web_plan()
    inside = quire.balance(plan, 8, 8, per_token=0, per_pair=1)
    assert inside.after < 1.1 < inside.before
    alone = quire.balance(plan, 16, 1, per_token=0, per_pair=1)
    across = quire.balance(plan, 16, 1, per_token=0, per_pair=1, window=8)
    assert alone.after == alone.before
    assert across.after < 1 + (alone.after - 1) / 3


def test_a_prefix_costs_as_much_as_other_tokens():
    plan = quire.make_plan([3, 2], max_length=8, prefix=1)  # 4 and 3 tokens, in one row
    costs = quire.attention_costs(plan, per_token=10, per_pair=1)
    assert costs.tolist() == [10 * (4 + 3) + 4**2 + 3**2]


def test_the_reported_ratio_is_that_of_the_rows():
    plan = web_plan()
    balanced = quire.balance(plan, 4, 3, window=2)
    costs = [sum(f.stop - f.start + 2e-5 * (f.stop - f.start) ** 2 for f in row) for row in plan]
    steps = [[sum(costs[row] for row in rank) for rank in step] for step in balanced.rows.tolist()]
    slowest = sum(max(step) for step in steps) / sum(sum(step) / 4 for step in steps)
    assert balanced.after == pytest.approx(slowest, rel=1e-9)


def fragments(plan: quire.Plan, rows: np.ndarray) -> list[tuple[int, int, int]]:
    return sorted(tuple(f) for row in rows.ravel().tolist() for f in plan[row])


@pytest.mark.parametrize("num_ranks", [1, 4, 7])
def test_dropped_rows_are_counted_in_documents_and_tokens(num_ranks):
    plan = quire.make_plan([9, 4, 4, 30, 1, 6, 3, 2], 10, stride=2, prefix=1)
    balanced = quire.balance(plan, num_ranks, 1, remainder="drop")
    used = balanced.rows.ravel().tolist()
    assert used == list(range(plan.num_rows // num_ranks * num_ranks))
    rest = [f for row in range(len(used), plan.num_rows) for f in plan[row]]
    ledger = balanced.ledger.check()
    survivors = {f.document for row in used for f in plan[row]}
    assert ledger.documents.emitted == len(survivors)
    content = sum(f.stop - f.start for row in used for f in plan[row])
    assert ledger.tokens.emitted + ledger.tokens.overlap == content
    assert ledger.tokens.special == sum(len(plan[row]) for row in used)
    assert (ledger.tokens.dropped["rank_equalize"] > 0) == bool(rest)
    places = len(used) * plan.max_length
    assert ledger.tokens.padding == places - content - ledger.tokens.special


def test_overlap_in_dropped_rows_is_no_longer_counted():
    plan = quire.make_plan([8, 8, 18], 8, "greedy", stride=2)
    assert (plan.num_rows, plan.ledger.tokens.overlap) == (5, 4)
    dropped = quire.balance(plan, 4, 1, remainder="drop").ledger.check().tokens
    assert (dropped.emitted, dropped.overlap) == (30, 2)
    assert dropped.dropped["rank_equalize"] == 4


def test_steps_of_a_window_are_ordered_by_their_first_rows():
    balanced = quire.balance([1, 9, 1, 9, 5, 5], num_ranks=2, window=3)
    assert balanced.rows[:, :, 0].tolist() == [[0, 2], [1, 3], [4, 5]]


def test_repeated_rows_count_as_overlap():
    plan = quire.make_plan([9, 8, 7], 10)
    balanced = quire.balance(plan, 2, 1, remainder="repeat")
    assert sorted(balanced.rows.ravel()) == [0, 0, 1, 2]
    assert balanced.ledger.check().tokens.emitted == 24
    assert balanced.ledger.tokens.overlap == 9
    few = quire.balance([1, 2, 3], 5, 1, remainder="repeat")
    assert sorted(few.rows.ravel()) == [0, 0, 1, 1, 2]


def test_split_rows_hold_the_same_fragments():
    plan = quire.make_plan([3] * 9, 10)
    balanced = quire.balance(plan, 4, 2, remainder="split")
    assert plan.num_rows == 3
    assert balanced.plan.num_rows == 8
    assert fragments(balanced.plan, balanced.rows) == fragments(plan, np.arange(3))
    assert balanced.ledger.tokens.padding == 8 * 10 - 27


def test_rows_that_cannot_be_split_are_an_error():
    plan = quire.make_plan([9, 8, 7], 10)
    with pytest.raises(InvalidOption, match="needs 1 more cuts between documents but"):
        quire.balance(plan, 2, 1, remainder="split")
    with pytest.raises(InvalidOption, match="pass the plan instead of costs"):
        quire.balance([1, 2, 3], 2, 1, remainder="split")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], 0), "num_ranks is 0"),
        (([1, 2], 1, 0), "rows_per_rank is 0"),
        (([1, float("nan")], 1), "row 1 costs nan"),
        (([1, -2], 1), "row 1 costs -2.0"),
        ((["a"], 1), "one number per row"),
        (([[1, 2]], 1), "one number per row"),
    ],
)
def test_bad_input_is_rejected(arguments, message):
    with pytest.raises(InvalidOption, match=message):
        quire.balance(*arguments)


def test_bad_options_are_rejected():
    with pytest.raises(InvalidOption, match="window is 0"):
        quire.balance([1], 1, window=0)
    with pytest.raises(InvalidOption, match="unknown remainder policy 'pad'"):
        quire.balance([1], 1, remainder="pad")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, "2", None])
@pytest.mark.parametrize("name", ["per_token", "per_pair"])
def test_a_cost_that_is_not_a_number_is_rejected(name, value):
    with pytest.raises(InvalidOption, match=f"{name} is .* finite number >= 0"):
        quire.balance(quire.make_plan([3, 3], 4), 2, **{name: value})


def test_no_rows_make_no_steps():
    for rows in ([], quire.make_plan([], 8)):
        for remainder in ("drop", "repeat"):
            balanced = quire.balance(rows, 2, 3, remainder=remainder)
            assert balanced.rows.shape == (0, 2, 3)
            assert balanced.before == balanced.after == 1.0


@pytest.mark.parametrize(("num_ranks", "rows_per_rank"), [(2, 1), (2, 2)])
def test_costs_whose_sum_is_not_finite_are_refused(num_ranks, rows_per_rank):
    with pytest.raises(InvalidOption, match="the costs of 8 rows sum to inf"):
        quire.balance([1e308] * 8, num_ranks, rows_per_rank)
