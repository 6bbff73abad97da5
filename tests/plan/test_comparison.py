"""Plans side by side: the figures, and the advice."""

from __future__ import annotations

import numpy as np
import pytest

from quire.plan import PlanOptions
from quire.plan.comparison import Candidate, compare, recommend


def one(lengths: list[int], **options) -> Candidate:
    return compare(np.array(lengths), [PlanOptions(**options)], batch_size=2)[0]


def test_the_figures_of_a_split_plan():
    found = one([5, 3, 2], max_length=4, overlong="split")
    assert (found.rows, found.bound, found.documents_cut) == (3, 3, 1)
    assert (found.documents, found.tokens, found.tokens_lost) == (3, 10, 0)
    assert found.utilization == 10 / 12
    assert found.steps == 2
    # fragments 4, 1, 3, 2: 10 + 1 + 6 + 3 pairs over 10 tokens
    assert found.attention == 2.0


def test_the_figures_of_a_truncated_plan():
    found = one([5, 3, 4], max_length=4, overlong="truncate")
    assert (found.rows, found.documents_truncated, found.tokens_lost) == (3, 1, 1)
    assert found.documents_cut == 0
    assert found.share_broken == pytest.approx(1 / 3)


def test_a_document_with_one_token_left_counts_as_truncated():
    assert one([5, 1], max_length=1, overlong="truncate").documents_truncated == 1


def test_a_document_cut_at_its_left_end_counts_as_truncated():
    assert one([5, 3], max_length=4, overlong="truncate_left").documents_truncated == 1


def test_a_dropped_document_is_broken():
    found = one([5, 3], max_length=4, overlong="drop")
    assert (found.documents_dropped, found.documents_truncated) == (1, 0)
    assert found.share_broken == 0.5


def test_a_document_whose_end_was_in_a_dropped_row_counts_as_truncated():
    found = one([6, 4], max_length=4, overlong="split", min_length=3)
    assert (found.documents_cut, found.documents_truncated, found.tokens_lost) == (0, 1, 2)
    assert (found.documents_broken, found.share_broken) == (1, 0.5)


def test_overlap_does_not_make_up_for_lost_tokens():
    found = one([9], max_length=4, stride=2, min_length=4)  # 0:4, 2:6, 4:8 and the short 6:9
    assert (found.documents_cut, found.documents_truncated, found.tokens_lost) == (1, 1, 1)
    assert one([8], max_length=4, stride=2).documents_truncated == 0


def test_a_document_that_is_cut_and_truncated_is_broken_once():
    found = one([3, 9, 9, 0], max_length=4, strategy="wrapped", overlong="truncate")
    assert (found.documents_cut, found.documents_truncated) == (2, 2)
    assert (found.documents_dropped, found.documents_broken) == (1, 3)


def test_steps_are_counted_in_whole_batches_and_each_plan_is_reported():
    told = []
    options = [PlanOptions(max_length=n) for n in (4, 2)]
    found = compare(np.array([2, 2, 2]), options, on_plan=told.append)
    assert told == found
    assert [(plan.rows, plan.steps) for plan in found] == [(2, 2), (3, 3)]


def test_a_prefix_counts_as_a_token_that_attends():
    assert one([3], max_length=4, prefix=1).attention == 10 / 4


def test_no_documents_make_no_rows():
    found = one([], max_length=4)
    assert (found.rows, found.gap, found.share_broken, found.attention) == (0, 0, 0, 0)


def candidates(lengths: np.ndarray, capacities: list[int], strategies: list[str], **more):
    options = [
        PlanOptions(max_length=c, strategy=s, **more) for c in capacities for s in strategies
    ]
    return compare(lengths, options)


def test_where_order_costs_nothing_it_is_kept():
    found = candidates(np.full(100, 4), [8], ["best_fit", "greedy", "wrapped"])
    chosen, reasons = recommend(found)
    assert chosen.strategy == "greedy"
    assert "keeps the order" in reasons[1]


def test_where_order_costs_rows_the_fit_is_taken():
    lengths = np.random.default_rng(0).integers(1, 60, 1000)
    chosen, reasons = recommend(candidates(lengths, [64], ["best_fit", "greedy", "wrapped"]))
    assert chosen.strategy == "best_fit"
    assert "proven bound" in reasons[1]


def test_the_shortest_length_that_breaks_few_documents_is_taken():
    lengths = np.array([10] * 95 + [100] * 5)
    chosen, reasons = recommend(candidates(lengths, [8, 16, 128], ["best_fit"]))
    assert chosen.max_length == 16
    assert "5.0%" in reasons[0]
    assert "100.0% at 8" in reasons[0]


def test_where_every_length_breaks_many_the_longest_is_recommended_with_the_reason():
    chosen, reasons = recommend(candidates(np.full(10, 100), [8, 16], ["best_fit"]))
    assert chosen.max_length == 16
    assert "every length breaks" in reasons[0]


def test_tokens_are_not_thrown_away_for_fuller_rows():
    lengths = np.random.default_rng(1).integers(1, 200, 500)
    both = candidates(lengths, [64], ["best_fit"], overlong="split") + candidates(
        lengths, [64], ["best_fit"], overlong="truncate"
    )
    assert recommend(both)[0].overlong == "split"


def test_the_advice_says_what_more_cuts_would_save():
    lengths = np.full(100, 5)
    chosen, reasons = recommend(candidates(lengths, [8], ["best_fit", "wrapped"]))
    assert chosen.strategy == "best_fit"
    assert reasons[-1] == "wrapped (split) would save 37 rows, and cut 50 more documents."


def test_figures_are_plain_values():
    plain = one([5, 3, 2], max_length=4).to_dict()
    assert plain["gap"] == 0.0
    assert plain["max_length"] == 4


@pytest.mark.parametrize("strategies", [["best_fit"], ["greedy", "best_fit"]])
def test_no_policy_that_would_drop_is_recommended_if_all_give_the_same_rows(strategies):
    policies = ("drop", "error", "fill", "split", "truncate")
    found = [
        one
        for policy in policies
        for one in candidates(np.full(100, 4), [8], strategies, overlong=policy)
    ]
    assert recommend(found)[0].overlong == "split"
