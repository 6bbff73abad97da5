from __future__ import annotations

import numpy as np
import pytest

import quire
from quire.errors import InvalidOption
from quire.plan import PlanOptions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity is 0 but must be an integer >= 1"),
        ({"capacity": -4}, "capacity is -4"),
        ({"capacity": 8.0}, "capacity is 8.0 but must be an integer"),
        ({"capacity": True}, "capacity is True"),
        ({"capacity": None}, "capacity is None"),
        ({"stride": -1}, "stride is -1 but must be an integer >= 0"),
        ({"stride": 8}, "stride=8 leaves no room for 1 new token"),
        ({"stride": 6, "prefix": 2}, "stride=6 leaves no room"),
        ({"prefix": 8}, "prefix=8 and align=1 leave no room for a token"),
        ({"align": 9}, "align=9 leave no room for a token in a row of capacity 8"),
        ({"align": 4, "prefix": 8}, "leave no room"),
        ({"align": 0}, "align is 0"),
        ({"min_length": 9}, "min_length=9 would drop every row"),
        ({"min_length": 0}, "min_length is 0"),
        ({"min_fragment": 0}, "min_fragment is 0"),
        ({"min_fragment": 9, "overlong": "fill"}, "min_fragment=9 is more than the 8 new tokens"),
        ({"max_documents_per_row": 0}, "max_documents_per_row is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"shuffle": 1}, "shuffle is 1 but must be True or False"),
        ({"overlong": "trunkate"}, "unknown overlong policy 'trunkate'; did you mean 'truncate'"),
        ({"strategy": "bestfit"}, "unknown strategy 'bestfit'; did you mean 'best_fit'"),
        ({"strategy": None}, "unknown strategy None"),
        ({"strategy": ["best_fit"]}, r"unknown strategy \['best_fit'\]"),
    ],
)
def test_an_impossible_option_is_refused_with_its_remedy(options, message):
    with pytest.raises(InvalidOption, match=message):
        quire.make_plan([3], **{"capacity": 8, **options})


def test_an_option_error_is_a_value_error():
    with pytest.raises(ValueError, match="stride"):
        quire.make_plan([30], 8, stride=8)


def test_an_unknown_keyword_is_an_error():
    with pytest.raises(TypeError, match="min_lenght"):
        quire.make_plan([3], 8, min_lenght=2)


def test_numpy_integers_are_integers():
    assert quire.make_plan([3], np.int64(8), stride=np.int32(2)).capacity == 8


def test_no_stride_is_always_valid():
    assert quire.make_plan([3], 1, stride=0).num_rows == 3


def test_without_a_seed_each_shuffle_draws_new_entropy():
    orders = {
        tuple(quire.make_plan([8] * 40, 8, shuffle=True, seed=None).documents) for _ in range(3)
    }
    assert len(orders) > 1


@pytest.mark.parametrize("name", ["stride", "prefix", "min_length", "align"])
def test_a_number_that_no_array_counts_is_refused(name):
    with pytest.raises(InvalidOption, match=f"{name} is {10**23} but must be at most"):
        PlanOptions(**{"capacity": 10**30, name: 10**23})


def test_a_row_longer_than_int64_has_a_bound_and_a_comparison():
    plan = quire.make_plan([3, 4], capacity=10**23)
    assert (plan.num_rows, plan.lower_bound) == (1, 1)


def test_a_row_that_is_too_short_without_stride_does_not_blame_stride():
    with pytest.raises(InvalidOption, match=r"beside the prefix; raise capacity$"):
        PlanOptions(capacity=2, prefix=1, min_tail=2)
