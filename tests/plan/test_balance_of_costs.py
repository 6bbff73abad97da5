"""Rows balanced by literal costs: the assignment, the ratios, the ledger and every message."""

from __future__ import annotations

import numpy as np
import pytest

import quire
from quire.errors import InvalidOption
from quire.ledger import Ledger, Tally


def test_the_default_costs_are_those_of_a_transformer_4096_wide():
    plan = quire.make_plan([100, 300], max_length=300)
    costs = quire.attention_costs(plan)
    assert costs.tolist() == [300 + 2e-5 * 300**2, 100 + 2e-5 * 100**2]
    balanced = quire.balance(plan, 2)
    assert balanced.before == costs.max() / costs.mean()


def test_the_cost_of_a_long_document_may_exceed_32_bits():
    plan = quire.make_plan([50_000], max_length=50_000)
    assert quire.attention_costs(plan, per_token=0, per_pair=1).tolist() == [50_000.0**2]


def test_a_plan_without_rows_costs_nothing():
    assert quire.attention_costs(quire.make_plan([], 8)).tolist() == []


def test_exchanges_even_out_what_assigning_the_costliest_rows_first_leaves():
    balanced = quire.balance([1, 2, 3, 4, 5, 9], num_ranks=2, rows_per_rank=3)
    # 9 | 5; 9 | 5 4; 9 3 | 5 4; 9 3 | 5 4 2; 9 3 1 | 5 4 2, then 3 for 2
    assert balanced.rows.tolist() == [[[0, 1, 5], [2, 3, 4]]]
    assert (balanced.before, balanced.after) == (18 / 12, 1.0)


def test_rows_of_equal_cost_are_assigned_in_order():
    balanced = quire.balance([5, 5, 5, 5], num_ranks=2, rows_per_rank=2)
    assert balanced.rows.tolist() == [[[0, 2], [1, 3]]]
    many = quire.balance([1] * 128, num_ranks=2, window=64)
    assert many.rows.tolist() == np.arange(128).reshape(64, 2, 1).tolist()


def test_steps_that_share_a_repeated_row_are_ordered_by_their_load():
    costs = [39, *range(77), 40]  # row 0 comes again at the end; row 40 costs as much, row 39 less
    balanced = quire.balance(costs, num_ranks=2, window=40, remainder="repeat").rows[:, :, 0]
    assert balanced.shape == (40, 2)
    assert [step for step in balanced.tolist() if 0 in step] == [[0, 40], [0, 39]]


def test_steps_after_the_last_full_window_form_their_own_window():
    balanced = quire.balance([1, 9, 9, 1, 7, 2], num_ranks=2, window=2)
    assert balanced.rows[:, :, 0].tolist() == [[0, 3], [1, 2], [4, 5]]


def test_a_single_row_is_repeated_for_every_rank():
    balanced = quire.balance([5], num_ranks=3, remainder="repeat")
    assert balanced.rows.tolist() == [[[0], [0], [0]]]
    assert balanced.ledger == Ledger(documents=Tally(input=1, emitted=1))


def test_the_ledger_of_costs_counts_rows():
    balanced = quire.balance([1, 2, 3, 4, 5], num_ranks=3)
    counted = Tally(input=5, emitted=3, dropped={"rank_equalize": 2})
    assert balanced.ledger == Ledger(documents=counted)


def test_rows_without_cost_are_balanced():
    balanced = quire.balance([0, 0], num_ranks=2)
    assert (balanced.before, balanced.after) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("costs", "options", "message"),
    [
        ([[1, 2]], {}, "costs are int64 of shape (1, 2) but must be one number per row"),
        ([True], {}, "costs are bool of shape (1,) but must be one number per row"),
        ([1, -2], {}, "row 1 costs -2.0 but a cost must be finite and >= 0"),
        ([1, 2, np.inf], {}, "row 2 costs inf but a cost must be finite and >= 0"),
        (
            [1, 2, 3],
            {"remainder": "split"},
            "remainder='split' cuts rows between documents, which costs do not show; "
            "pass the plan instead of costs, or use remainder='drop' or 'repeat'",
        ),
        ([1], {"num_ranks": 0}, "num_ranks is 0 but must be an integer >= 1"),
        ([1], {"rows_per_rank": 0}, "rows_per_rank is 0 but must be an integer >= 1"),
        ([1], {"window": 0}, "window is 0 but must be an integer >= 1"),
        (
            [1],
            {"remainder": "dorp"},
            "unknown remainder policy 'dorp'; did you mean 'drop'? known: drop, repeat, split",
        ),
    ],
)
def test_every_message_is_complete(costs, options, message):
    with pytest.raises(InvalidOption) as caught:
        quire.balance(costs, **{"num_ranks": 2, **options})
    assert str(caught.value) == message


def test_the_message_about_a_cost_names_the_option_and_the_value():
    with pytest.raises(InvalidOption) as caught:
        quire.balance(quire.make_plan([3], 4), 1, per_pair=-1)
    assert str(caught.value) == "per_pair is -1 but must be a finite number >= 0"


def test_numpy_integers_do_not_overflow():
    plan = quire.make_plan([3] * 300, 8)
    balanced = quire.balance(plan, np.int8(100), np.int8(2), remainder="repeat")
    assert balanced.rows.tolist() == quire.balance(plan, 100, 2, remainder="repeat").rows.tolist()
    assert quire.balance(plan, np.uint8(16), np.uint8(17)).rows.shape == (0, 16, 17)


def test_ragged_costs_are_rejected():
    with pytest.raises(InvalidOption, match="costs cannot be read as one number per row"):
        quire.balance([[1, 2], [3]], 2)
