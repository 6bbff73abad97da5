"""Every strategy respects every parameter of make_plan."""

from __future__ import annotations

import inspect
import itertools
from dataclasses import fields

import numpy as np
import pytest

import quire
from quire.errors import OversizedDocument
from quire.plan import PlanOptions, quick_strategy_names
from quire.plan.strategies import BUILT_IN

LENGTHS = [7, 3, 25, 4, 1, 0, 6, 2, 9, 5, 5, 3, 8, 2, 2, 6]
BASE = {"max_length": 10}


def spaces(plan: quire.Plan) -> np.ndarray:
    sizes = plan.options.spaces(plan.stops - plan.starts)
    return np.add.reduceat(sizes, plan.row_offsets[:-1])


def overlap_is(plan: quire.Plan, stride: int) -> bool:
    parts = sorted((f.start, f.stop) for row in plan for f in row if f.document == 2)
    return all(b[0] == max(0, a[1] - stride) for a, b in itertools.pairwise(parts))


# What to change, on top of what, and what must then be true of the plan. One entry a parameter.
PROBES = {
    "max_length": ({}, {"max_length": 12}, lambda p: p.row_lengths.max() <= 12),
    "overlong": ({}, {"overlong": "drop"}, lambda p: 2 not in p.documents),
    "stride": ({}, {"stride": 3}, lambda p: overlap_is(p, 3) and p.ledger.tokens.overlap > 0),
    "prefix": ({}, {"prefix": 2}, lambda p: (spaces(p) <= 10).all() and p.ledger.tokens.special),
    "min_length": (
        {"max_documents_per_row": 1},
        {"min_length": 4},
        lambda p: p.row_lengths.min() >= 4 and p.ledger.tokens.dropped["row_too_short"],
    ),
    "min_fragment": (
        {"overlong": "fill", "lengths": [6] * 10},
        {"min_fragment": 3},
        lambda p: (p.stops - p.starts).min() >= 3 and p.num_fragments > 10,
    ),
    "max_documents_per_row": (
        {"lengths": [1] * 12},
        {"max_documents_per_row": 2},
        lambda p: np.diff(p.row_offsets).max() <= 2,
    ),
    "align": ({}, {"align": 4}, lambda p: (spaces(p) <= 8).all() and (spaces(p) % 4 == 0).all()),
    "shuffle": ({}, {"shuffle": True}, lambda p: p.num_rows > 1),
    "seed": ({"shuffle": True}, {"seed": 1}, lambda p: p.num_rows > 1),
}
SHAPE = {"lengths", "strategy"}  # what the other parameters act on, and the axis of the table


def test_every_parameter_has_a_probe():
    assert set(inspect.signature(quire.make_plan).parameters) - SHAPE == set(PROBES)


@pytest.mark.parametrize("parameter", sorted(PROBES))
@pytest.mark.parametrize("strategy", BUILT_IN)
def test_every_strategy_respects_every_parameter(strategy, parameter):
    around, change, holds = PROBES[parameter]
    around = {"lengths": LENGTHS, **BASE, **around}
    without = quire.make_plan(strategy=strategy, **around)
    plan = quire.make_plan(strategy=strategy, **{**around, **change})
    assert holds(plan)
    arrays = zip(without._arrays(), plan._arrays(), strict=True)
    assert not all(np.array_equal(a, b) for a, b in arrays)


def test_strategies_differ_from_each_other():
    lengths = [7, 12, 6, 3, 4, 5, 3, 1]
    plans = {name: list(quire.make_plan(lengths, 14, name)) for name in BUILT_IN}
    alike = {(a, b) for a, b in itertools.combinations(BUILT_IN, 2) if plans[a] == plans[b]}
    assert alike <= {("best_fit", "tight")}  # where best-fit is optimal, tight has nothing to add


def test_every_built_in_strategy_but_tight_is_quick():
    assert quick_strategy_names() == sorted(set(BUILT_IN) - {"tight"})


def test_the_options_of_make_plan_are_those_of_plan_options():
    signature = inspect.signature(quire.make_plan).parameters
    declared = {field.name: field for field in fields(PlanOptions)}
    assert set(declared) - set(signature) == {"min_tail", "ends_with_eos"}
    for name, parameter in signature.items():
        if parameter.default is not inspect.Parameter.empty:
            assert parameter.default == declared[name].default


def test_an_overlong_document_is_an_error_with_overlong_error():
    message = "document 1 has 11 tokens but a row holds 9; split it"
    with pytest.raises(OversizedDocument, match=message):
        quire.make_plan([3, 11], 10, prefix=1, overlong="error")


@pytest.mark.parametrize("strategy", BUILT_IN)
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_no_tokens_make_an_empty_plan(strategy, lengths):
    for overlong in ("split", "fill", "drop", "truncate"):
        plan = quire.make_plan(lengths, 8, strategy, overlong=overlong, shuffle=True)
        assert (plan.num_rows, plan.num_fragments, plan.utilization) == (0, 0, 0.0)
        assert plan.lower_bound == 0
        assert list(plan) == []
        assert plan.ledger.documents.dropped["empty"] == len(lengths)


def test_every_document_dropped_makes_an_empty_plan():
    assert quire.make_plan([9, 10], 8, overlong="drop").num_rows == 0


@pytest.mark.parametrize("strategy", BUILT_IN)
def test_more_than_two_to_the_31_tokens_are_planned_correctly(strategy):
    lengths = [2**31 + 5, 2**30, 2**33]
    plan = quire.make_plan(lengths, 2**31, strategy)
    assert plan.ledger.tokens.emitted == sum(lengths)
    assert int((plan.stops - plan.starts).sum()) == sum(lengths)
    assert plan.row_lengths.max() <= 2**31


@pytest.mark.parametrize("strategy", BUILT_IN)
def test_a_row_longer_than_all_tokens_costs_nothing(strategy):
    assert quire.make_plan([5, 6, 7], 2**60, strategy).num_rows == 1
