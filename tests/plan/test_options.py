from __future__ import annotations

import numpy as np
import pytest

import quire
from quire.errors import InvalidOption
from quire.options import PackOptions
from quire.plan import PlanOptions, strategy_names
from quire.plan.planner import plan_options, require_plannable

OVERLONG = "split, truncate, truncate_left, drop, error, fill"


def whole(name: str, value: object, least: int) -> str:
    return f"{name} is {value!r} but must be an integer >= {least}"


def no_room(prefix: int, align: int) -> str:
    return (
        f"a row of max_length=8 has no room for a token after BOS (prefix={prefix}, "
        f"align={align}); raise max_length or leave BOS out (add_bos=False)"
    )


def no_new_token(stride: int, row: str) -> str:
    return (
        f"stride={stride} leaves no room for 1 new token in a row {row}; lower stride or raise "
        "max_length"
    )


def too_long_a_piece(least: int, most: int) -> str:
    return (
        f"min_fragment={least} is over half of the {most} new tokens that a row holds, so "
        f"cutting a document of {most + 1} would leave a shorter piece; lower min_fragment to "
        f"{(most + 1) // 2} or raise max_length"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 0}, whole("max_length", 0, 1)),
        ({"max_length": -4}, whole("max_length", -4, 1)),
        ({"max_length": 8.0}, whole("max_length", 8.0, 1)),
        ({"max_length": True}, whole("max_length", True, 1)),
        ({"max_length": None}, whole("max_length", None, 1)),
        ({"stride": -1}, whole("stride", -1, 0)),
        ({"stride": None}, whole("stride", None, 0)),
        ({"stride": 8}, no_new_token(8, "of 8")),
        ({"stride": 6, "prefix": 2}, no_new_token(6, "that holds 6 after BOS")),
        ({"prefix": -1}, whole("prefix", -1, 0)),
        ({"prefix": 8}, no_room(8, 1)),
        ({"align": 4, "prefix": 8}, no_room(8, 4)),
        ({"align": 0}, whole("align", 0, 1)),
        (
            {"min_length": 9},
            "min_length=9 would drop every row because a row holds at most 8 tokens; "
            "lower min_length or raise max_length",
        ),
        ({"min_length": 0}, whole("min_length", 0, 1)),
        ({"min_fragment": 0}, whole("min_fragment", 0, 1)),
        ({"min_fragment": 5, "overlong": "fill"}, too_long_a_piece(5, 8)),
        ({"min_fragment": 4, "overlong": "fill", "stride": 3}, too_long_a_piece(4, 5)),
        (
            {"align": 9, "prefix": 1},
            "align=9 is more than the 8 tokens of a row; lower align or raise max_length",
        ),
        ({"max_documents_per_row": 0}, whole("max_documents_per_row", 0, 1)),
        ({"seed": -1}, whole("seed", -1, 0)),
        ({"shuffle": 1}, "shuffle is 1 but must be True or False"),
        (
            {"overlong": "trunkate"},
            f"overlong is 'trunkate' but must be one of {OVERLONG}; did you mean truncate?",
        ),
        (
            {"strategy": "bestfit"},
            "unknown strategy 'bestfit'; did you mean 'best_fit'? known: "
            + ", ".join(strategy_names()),
        ),
        ({"strategy": None}, "strategy is None but must be a string"),
        ({"strategy": ["best_fit"]}, "strategy is ['best_fit'] but must be a string"),
    ],
)
def test_an_impossible_option_is_rejected_with_its_remedy(options, message):
    with pytest.raises(InvalidOption) as caught:
        quire.make_plan([3], **{"max_length": 8, **options})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "options",
    [
        {"max_length": 1},
        {"stride": 7},
        {"stride": 5, "prefix": 2},
        {"prefix": 7},
        {"align": 8},
        {"align": 4, "prefix": 7},
        {"min_length": 8},
        {"min_fragment": 4, "overlong": "fill"},
        {"min_fragment": 3, "overlong": "fill", "stride": 3},
        {"min_fragment": 9},  # only fill cuts to close gaps
        {"min_tail": 8},
        {"min_tail": 5, "stride": 3},
        {"max_documents_per_row": 1},
        {"seed": 10**30},
    ],
)
def test_the_most_extreme_valid_value_of_an_option_is_accepted(options):
    taken = PlanOptions(**{"max_length": 8, **options})
    assert {name: getattr(taken, name) for name in options} == options


def test_min_tail_is_validated_like_the_other_numbers():
    with pytest.raises(InvalidOption, match=r"^min_tail is 0 but must be an integer >= 1$"):
        PlanOptions(max_length=8, min_tail=0)
    with pytest.raises(InvalidOption, match=r"^stride=3 leaves no room for 6 new tokens in"):
        PlanOptions(max_length=8, min_tail=6, stride=3)


def test_an_option_error_is_a_value_error():
    with pytest.raises(ValueError, match="stride"):
        quire.make_plan([30], 8, stride=8)


def test_an_unknown_keyword_is_an_error():
    with pytest.raises(TypeError, match="min_lenght"):
        quire.make_plan([3], 8, min_lenght=2)


def test_numpy_integers_are_accepted():
    assert quire.make_plan([3], np.int64(8), stride=np.int32(2)).max_length == 8


def test_no_stride_is_always_valid():
    assert quire.make_plan([3], 1, stride=0).num_rows == 3


def test_without_a_seed_each_shuffle_draws_new_entropy():
    orders = {
        tuple(quire.make_plan([8] * 40, 8, shuffle=True, seed=None).documents) for _ in range(3)
    }
    assert len(orders) > 1


NUMBERS = ["stride", "prefix", "min_length", "min_fragment", "min_tail", "max_documents_per_row"]


@pytest.mark.parametrize("name", [*NUMBERS, "align"])
def test_a_number_beyond_64_bits_is_rejected(name):
    assert getattr(PlanOptions(**{"max_length": 10**30, name: 2**63 - 1}), name) == 2**63 - 1
    with pytest.raises(InvalidOption) as caught:
        PlanOptions(**{"max_length": 10**30, name: 2**63})
    assert str(caught.value) == f"{name} is {2**63} but must be at most {2**63 - 1}"


def test_a_numpy_integer_becomes_an_int():
    assert type(PlanOptions(max_length=np.int64(8)).max_length) is int


@pytest.mark.parametrize(
    "option",
    [{"stride": 3}, {"prefix": 2}, {"min_tail": 4}, {"max_documents_per_row": 5}, {"align": 8}],
)
def test_options_that_make_a_cut_cost_space_are_known(option):
    assert PlanOptions(max_length=32, seed=9, overlong="fill", min_length=3).cuts_are_free
    assert not PlanOptions(max_length=32, **option).cuts_are_free


@pytest.mark.parametrize(
    ("prefix", "align", "spaces"),
    [(0, 1, [1, 4, 5]), (3, 1, [4, 7, 8]), (0, 2, [2, 4, 6]), (0, 4, [4, 4, 8]), (3, 4, [4, 8, 8])],
)
def test_a_fragment_takes_its_prefix_and_is_rounded_up(prefix, align, spaces):
    options = PlanOptions(max_length=16, prefix=prefix, align=align)
    assert options.spaces(np.array([1, 4, 5])).tolist() == spaces


def test_a_row_longer_than_int64_has_a_bound_and_a_comparison():
    plan = quire.make_plan([3, 4], max_length=10**23)
    assert (plan.num_rows, plan.lower_bound) == (1, 1)


def test_a_row_that_is_too_short_without_stride_does_not_blame_stride():
    with pytest.raises(InvalidOption, match=r"after BOS; raise max_length$"):
        PlanOptions(max_length=2, prefix=1, min_tail=2)


@pytest.mark.parametrize(
    ("options", "prefix", "min_tail"),
    [
        ({"max_length": 4}, 0, 2),
        ({"max_length": 4, "stride": 2}, 0, 2),
        ({"max_length": 4, "stride": 3}, 0, 1),  # the overlap is content
        ({"max_length": 4, "stride": 2}, 1, 1),
        ({"max_length": 2}, 0, 2),
        ({"max_length": 4, "overlong": "truncate"}, 0, 1),
        ({"max_length": 4, "overlong": "truncate", "strategy": "wrapped"}, 0, 2),
    ],
)
def test_an_added_eos_is_kept_with_content_where_documents_are_cut(options, prefix, min_tail):
    given = PackOptions(**options)
    assert plan_options(given, prefix, ends_with_eos=True).min_tail == min_tail
    assert plan_options(given, prefix).min_tail == 1


def test_a_row_of_one_token_can_hold_some_documents():
    require_plannable(PackOptions(max_length=1))
    with pytest.raises(InvalidOption, match="stride=1 leaves no room for 1 new token in a row"):
        require_plannable(PackOptions(max_length=1, stride=1))
