"""pack_step: literal rows, then the guarantees for random steps, then bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quire
from quire.errors import InvalidLengths, InvalidOption, OversizedDocument
from quire.step import model_cost
from tests.quick import few
from tests.step.cases import random_case
from tests.step.checker import violations
from tests.step.layout import layout_violations
from tests.step.optimum import fewest_micro_steps


def rows(plan):
    return [
        [plan.row(rank, step).tolist() for step in range(plan.num_micro_steps)]
        for rank in range(plan.num_ranks)
    ]


def test_sequences_of_a_step_by_hand():
    plan = quire.pack_step([8, 8, 4, 4, 3, 5], max_length=8, num_ranks=2)
    assert rows(plan) == [[[0], [4, 5]], [[1], [2, 3]]]
    assert plan.lower_bound == plan.num_micro_steps == 2
    assert plan.ledger.tokens.padding == 0


def test_the_rows_of_a_micro_step_cost_the_same_where_that_is_possible():
    plan = quire.pack_step([9, 7, 6, 5, 4, 1], max_length=16, num_ranks=2, cost=(1, 0))
    assert plan.costs.tolist() == [[16.0], [16.0]]
    assert plan.imbalance == 1.0


def test_imbalance_is_the_sum_of_the_highest_costs_over_the_sum_of_means():
    plan = quire.pack_step([8, 4, 6, 6], max_length=8, num_ranks=2, cost=(1, 0))
    assert plan.costs.max(axis=0).tolist() == [8.0, 6.0]
    assert plan.imbalance == (8 + 6) / ((8 + 6) / 2 + (6 + 4) / 2)


def test_the_same_plan_comes_from_a_list_an_array_and_a_tensor():
    import torch

    lengths = np.random.default_rng(0).integers(1, 900, 200)
    plans = [
        quire.pack_step(kind(lengths), max_length=1000, num_ranks=4)
        for kind in (list, np.array, torch.tensor, lambda a: a.astype(np.uint16))
    ]
    for plan in plans[1:]:
        assert np.array_equal(plan.documents, plans[0].documents)
        assert np.array_equal(plan.row_offsets, plans[0].row_offsets)


@pytest.mark.parametrize("seed", few(range(2000), 20))
def test_no_random_step_breaks_a_guarantee(seed):
    lengths, options = random_case(np.random.default_rng(seed))
    plan = quire.pack_step(lengths, **options)
    assert list(violations(lengths, plan, **options)) == []
    assert layout_violations(lengths, plan, **options) == []


@given(
    st.lists(st.integers(0, 40), max_size=30),
    st.integers(40, 100),
    st.integers(1, 6),
    st.integers(1, 4),
)
def test_every_sequence_is_in_one_row_and_no_row_exceeds_its_budget(
    lengths, max_length, num_ranks, multiple
):
    options = {
        "max_length": max_length,
        "num_ranks": num_ranks,
        "micro_steps_multiple_of": multiple,
    }
    plan = quire.pack_step(lengths, **options)
    assert list(violations(lengths, plan, **options)) == []
    assert plan.ledger.tokens.emitted == sum(lengths)


@pytest.mark.parametrize("seed", few(range(400), 20))
def test_the_bound_is_never_above_the_optimum(seed):
    lengths, options = random_case(np.random.default_rng(seed))
    plan = quire.pack_step(lengths[:6], **_first_six(options))
    optimum = fewest_micro_steps(lengths[:6], plan, **_first_six(options))
    assert optimum is None or plan.lower_bound <= optimum <= plan.num_micro_steps


def _first_six(options):
    budgets = {
        name: (sizes[:6], most) for name, (sizes, most) in options.get("budgets", {}).items()
    }
    labels = {name: options[name][:6] for name in ("groups", "kinds") if name in options}
    return {**options, **labels, "budgets": budgets}


@pytest.mark.parametrize("seed", few(range(60), 6))
def test_small_steps_reach_the_optimum(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 11, rng.integers(1, 7))
    options = {"max_length": 10, "num_ranks": int(rng.integers(1, 3))}
    plan = quire.pack_step(lengths, **options)
    assert plan.num_micro_steps == fewest_micro_steps(lengths, plan, **options)


def test_rows_that_best_fit_does_not_find_are_searched_for():
    plan = quire.pack_step([5, 5, 4, 4, 3, 3], max_length=12)
    assert plan.num_micro_steps == plan.lower_bound == 2


@pytest.mark.parametrize(
    ("lengths", "groups", "share", "expected"),
    [
        ([8] * 6, [0, 0, 1, 1, 2, 2], "rank", 4),  # a rank has two groups of two rows
        ([5] * 6, [0, 0, 1, 1, 2, 2], "rank", 4),
        ([1, 8] * 3, [0, 0, 1, 1, 2, 2], "micro_step", 3),  # two groups exceed 16
    ],
)
def test_the_bound_knows_that_groups_stay_together(lengths, groups, share, expected):
    options = {"max_length": 8, "num_ranks": 2, "groups": groups, "groups_share": share}
    plan = quire.pack_step(lengths, **options)
    assert plan.lower_bound == plan.num_micro_steps == expected
    assert quire.pack_step(lengths, max_length=8, num_ranks=2).num_micro_steps < expected
    assert fewest_micro_steps(lengths, plan, **options) == expected


@pytest.mark.parametrize("seed", few(range(20), 3))
def test_groups_on_ranks_need_at_most_one_micro_step_more_than_the_bound(seed):
    lengths = np.random.default_rng(seed).lognormal(8.6, 0.8, 512).astype(int).clip(1, 16384)
    options = {"groups": np.arange(512) // 8, "groups_share": "rank"}
    plan = quire.pack_step(lengths, max_length=16384, num_ranks=8, **options)
    assert plan.num_micro_steps <= plan.lower_bound + 1
    assert plan.imbalance < 1.04


def test_groups_with_costly_sequences_share_a_micro_step():
    options = {"groups": list("aabbccdd"), "groups_share": "micro_step", "cost": (0, 1)}
    plan = quire.pack_step([9, 3, 9, 1, 6, 5, 5, 4], max_length=12, num_ranks=2, **options)
    assert plan.num_micro_steps == 2
    assert sorted([*plan.row(0, 0), *plan.row(1, 0)]) == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", few(range(20), 3))
def test_groups_in_micro_steps_are_swapped_until_few_wait_for_a_long_sequence(seed):
    lengths = np.random.default_rng(seed).lognormal(8.6, 0.8, 512).astype(int).clip(1, 16384)
    options = {"groups": np.arange(512) // 8, "groups_share": "micro_step", "cost": (24576, 1)}
    plan = quire.pack_step(lengths, max_length=16384, num_ranks=8, **options)
    assert plan.num_micro_steps <= plan.lower_bound + 4
    assert plan.imbalance < 1.22
    assert list(violations(lengths, plan, max_length=16384, num_ranks=8, **options)) == []


def test_a_group_of_several_kinds_has_one_rank_for_all_of_them():
    options = {
        "max_length": 8,
        "num_ranks": 2,
        "groups": [0, 0, 1, 1, 2, 3],
        "kinds": ["a", "b", "a", "b", "a", "b"],
        "groups_share": "rank",
    }
    plan = quire.pack_step([8] * 6, **options)
    assert list(violations([8] * 6, plan, **options)) == []
    assert plan.num_micro_steps == 4


@pytest.mark.parametrize("change", ["over budget", "lost", "twice", "count", "ledger"])
def test_the_checker_notices_a_plan_that_breaks_a_guarantee(change):
    from dataclasses import replace

    lengths, options = [5, 3, 4, 4, 2, 6], {"max_length": 8, "num_ranks": 2}
    plan = quire.pack_step(lengths, **options)
    wrong = {
        "over budget": {"row_offsets": np.array([0, 3, 3, 5, 6])},
        "lost": {"documents": np.where(plan.documents == 2, 1, plan.documents)},
        "twice": {"starts": np.zeros_like(plan.starts), "stops": plan.stops + 1},
        "count": {"lower_bound": plan.num_micro_steps + 1},
        "ledger": {"ledger": plan.ledger + plan.ledger},
    }[change]
    assert list(violations(lengths, plan, **options)) == []
    assert list(violations(lengths, replace(plan, **wrong), **options))


def test_a_step_without_sequences_is_one_micro_step_of_dummies_on_every_rank():
    plan = quire.pack_step([], max_length=8, num_ranks=3)
    assert plan.num_micro_steps == 1
    assert plan.dummies.tolist() == [[0, 0], [1, 0], [2, 0]]
    assert plan.imbalance == 1.0
    assert "3 dummy rows" in repr(plan)


def test_more_ranks_than_sequences_give_named_dummies_of_one_padding_token():
    plan = quire.pack_step([4, 2], max_length=8, num_ranks=3)
    assert rows(plan) == [[[0]], [[1]], [[]]]
    assert plan.dummies.tolist() == [[2, 0]]
    assert plan.gather(np.arange(1, 7), 2, 0, pad=-1).tolist() == [-1]
    assert plan.cu_seqlens(2, 0).tolist() == [0]


def test_empty_sequences_are_in_no_row_and_counted():
    plan = quire.pack_step([0, 4, 0], max_length=8)
    assert rows(plan) == [[[1]]]
    assert plan.ledger.documents.dropped == {"empty": 2}
    assert plan.inverse.tolist() == [-1, 0, -1]


def test_an_overlong_sequence_is_refused_with_its_number_both_values_and_the_remedy():
    with pytest.raises(
        OversizedDocument, match=r"sequence 1 has 9 tokens but a row holds 8; split"
    ):
        quire.pack_step([3, 9], max_length=8)


def test_an_overlong_sequence_is_dropped_and_counted_if_asked():
    plan = quire.pack_step([3, 9], max_length=8, overlong="drop")
    assert rows(plan) == [[[0]]]
    assert plan.ledger.documents.dropped == {"too_long": 1}
    assert plan.ledger.tokens.dropped == {"too_long": 9}


def test_an_overlong_sequence_is_split_if_asked():
    plan = quire.pack_step([3, 19], max_length=8, overlong="split")
    pieces = sorted(zip(plan.documents, plan.starts, plan.stops, strict=True))
    assert pieces == [(0, 0, 3), (1, 0, 8), (1, 8, 16), (1, 16, 19)]
    assert plan.num_sequences == 2


def test_alignment_of_sequences_is_real_padding_in_the_row():
    plan = quire.pack_step([3, 5], max_length=12, align=4, align_rows=16 // 2)
    assert plan.row_lengths.tolist() == [[8, 8]] or plan.row_lengths.tolist() == [[8], [8]]
    wider = quire.pack_step([3, 5], max_length=16, align=4, align_rows=8)
    assert wider.row_lengths.tolist() == [[16]]
    assert wider.gather(np.arange(1, 9), 0, 0).tolist() == [
        *[1, 2, 3, 0],
        *[4, 5, 6, 7, 8, 0, 0, 0],
        *[0, 0, 0, 0],
    ]
    assert wider.cu_seqlens(0, 0).tolist() == [0, 3, 8]
    assert wider.cu_seqlens_padded(0, 0).tolist() == [0, 4, 12, 16]
    assert wider.segment_ids(0, 0).tolist() == [1, 1, 1, 0, *[2] * 5, 0, 0, 0, *[0] * 4]
    assert wider.position_ids(0, 0).tolist() == [*range(4), *range(8), *range(4)]


def test_groups_share_a_row_a_rank_or_a_micro_step():
    lengths, groups = [3] * 8, [0, 0, 1, 1, 2, 2, 3, 3]
    for share in ("row", "rank", "micro_step"):
        options = {"max_length": 6, "num_ranks": 2, "groups": groups, "groups_share": share}
        plan = quire.pack_step(lengths, **options)
        assert plan.num_micro_steps == 2
        assert list(violations(lengths, plan, **options)) == []


def test_a_group_larger_than_its_row_is_refused_or_dropped_as_a_whole():
    options = {"max_length": 8, "groups": ["a", "b", "a"]}
    with pytest.raises(OversizedDocument, match="the group of sequence 0 takes 10 tokens and does"):
        quire.pack_step([5, 3, 5], **options)
    plan = quire.pack_step([5, 3, 5], overlong="drop", **options)
    assert rows(plan) == [[[1]]]
    assert plan.ledger.documents.dropped == {"group_too_long": 2}


def test_kinds_do_not_share_a_micro_step():
    plan = quire.pack_step([4] * 6, max_length=8, num_ranks=2, kinds=["text", "image"] * 3)
    kinds = [{n % 2 for rank in (0, 1) for n in plan.row(rank, step)} for step in (0, 1)]
    assert sorted(map(sorted, kinds)) == [[0], [1]]


def test_a_further_budget_limits_a_row():
    budgets = {"images": ([2, 2, 1, 1], 3)}
    plan = quire.pack_step([1] * 4, max_length=8, num_ranks=1, budgets=budgets)
    assert plan.num_micro_steps == 2
    with pytest.raises(OversizedDocument, match="sequence 0 has 4 images but a row holds 3"):
        quire.pack_step([1], max_length=8, budgets={"images": ([4], 3)})


def test_small_micro_steps_are_at_both_ends_if_asked():
    lengths = [8, 8, 6, 6, 4, 4, 2, 2]
    options = {"max_length": 8, "num_ranks": 2, "min_micro_steps": 4}
    plain = quire.pack_step(lengths, **options)
    ends = quire.pack_step(lengths, order="smallest_at_ends", **options)
    assert plain.row_lengths[0].tolist() == [8, 6, 4, 2]
    assert ends.row_lengths[0].tolist() == [4, 8, 6, 2]


def test_row_lengths_take_at_most_the_asked_number_of_shapes():
    lengths = [8, 8, 8, 7, 3, 2]
    plan = quire.pack_step(lengths, max_length=8, num_ranks=1, shapes=2, min_micro_steps=6)
    assert sorted(plan.row_lengths[0].tolist()) == [3, 3, 8, 8, 8, 8]
    given = quire.pack_step(lengths, max_length=8, shapes=[4, 8], min_micro_steps=6)
    assert sorted(given.row_lengths[0].tolist()) == [4, 4, 8, 8, 8, 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": (float("nan"), 1)}, "linear nan but it must be finite"),
        ({"cost": (1, -1)}, "quadratic -1 but"),
        ({"cost": (1, 2, 3)}, "cost has 3 numbers"),
        ({"cost": lambda lengths: lengths * np.nan}, "returned nan for a length of 3"),
        ({"cost": lambda lengths: 1}, "must return one number for each"),
        ({"cost": {"hidden_size": 4}}, "num_hidden_layers is None"),
        ({"num_ranks": 0}, "num_ranks is 0"),
        ({"max_length": 0}, "max_length is 0"),
        ({"groups": [1]}, "groups has 1 labels for 2 sequences"),
        ({"kinds": [1, 2, 3]}, "kinds has 3 labels for 2 sequences"),
        ({"groups": [1, 1], "kinds": [1, 2]}, "sequences 0 and 1 are of one group"),
        ({"budgets": {"images": ([1], 2)}}, "has 1 numbers for 2 sequences"),
        ({"align": 16}, "no room for one aligned sequence"),
        ({"shapes": [16]}, "shapes has a row of 16 tokens"),
        ({"shapes": 0}, "shapes is 0"),
        ({"order": "random"}, "order is 'random'"),
        ({"max_lenght": 3}, "did you mean 'max_length'"),
    ],
)
def test_bad_options_are_errors_that_name_the_value(options, message):
    with pytest.raises(InvalidOption, match=message):
        quire.pack_step([3, 4], **{"max_length": 8, **options})


def test_bad_lengths_are_errors():
    for lengths, message in (([-1], "length -1"), ([1.5], "1.5"), ([[1]], "2 dimensions")):
        with pytest.raises(InvalidLengths, match=message):
            quire.pack_step(lengths, max_length=8)


def test_a_model_config_gives_the_cost():
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        vocab_size=1000, num_key_value_heads=2, head_dim=16,
    )  # fmt: skip
    linear = 2 * (2 * 64 * (2 * 64 + 2 * 32) + 6 * 64 * 128) + 2 * 64 * 1000
    assert model_cost(config) == (linear, 2 * 2 * 64)
    by_config = quire.pack_step([3, 5], max_length=8, cost=config)
    assert by_config.costs.tolist() == [[linear * 8 + 256 * 34]]
