"""pack_step, gather and unpack with input at the edges: right, or an error that names the value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import quire
from quire.errors import InvalidLengths, InvalidOption, OversizedDocument
from quire.step import model_cost

LENGTHS = [5, 3, 4, 4, 2, 6]
PLAN = quire.pack_step(LENGTHS, max_length=8, num_ranks=2)
TOKENS = np.arange(24)


def test_a_rank_in_a_narrow_integer_type_is_that_rank():
    plan = quire.pack_step([1] * 400, max_length=1, num_ranks=4)
    for kind in (np.uint8, np.int8, torch.tensor):
        assert plan.row(kind(3), kind(1)).tolist() == plan.row(3, 1).tolist()
        gathered = plan.gather(TOKENS.repeat(17)[:400], kind(3), per="token")
        assert np.array_equal(gathered, plan.gather(TOKENS.repeat(17)[:400], 3, per="token"))


@pytest.mark.parametrize("rank", [True, 1.0, [0], "1"])
def test_a_rank_that_is_not_an_integer_is_refused_however_often_it_is_asked_for(rank):
    PLAN.sequences(1)
    for call in (PLAN.sequences, lambda rank: PLAN.gather(TOKENS, rank), lambda r: PLAN.row(r, 0)):
        with pytest.raises(InvalidOption, match=r"rank is .* but must be an integer"):
            call(rank)


def test_ends_of_sequences_beyond_32_bits_are_exact():
    plan = quire.pack_step([2**31 - 1, 2**31, 5], max_length=2**33, align=8)
    assert plan.cu_seqlens(0, 0).tolist() == [0, 2**31 - 1, 2**32 - 1, 2**32 + 4]
    assert plan.cu_seqlens_padded(0, 0).tolist() == [0, 2**31, 2**32, 2**32 + 8]
    assert PLAN.cu_seqlens(0, 0).dtype == np.int32


def test_labels_are_compared_by_value_whatever_holds_them():
    labels = [1, 2, 1, 2]
    for kind in (torch.tensor, np.int64, np.array):
        options = {"groups": [kind(label) for label in labels], "kinds": list(map(kind, labels))}
        plan = quire.pack_step([3] * 4, max_length=8, num_ranks=1, **options)
        assert sorted(plan.row(0, step).tolist() for step in (0, 1)) == [[0, 2], [1, 3]]


def test_a_free_sequence_shares_no_group_with_a_label_that_is_a_tuple():
    plan = quire.pack_step([6, 6], max_length=8, groups=[None, (0,)])
    assert plan.num_micro_steps == 2


@pytest.mark.parametrize("share", ["row", "rank", "micro_step"])
def test_a_sequence_of_no_group_may_be_split_into_any_rows(share):
    options = {"groups": [None, 1, 1], "groups_share": share, "overlong": "split"}
    plan = quire.pack_step([20, 2, 2], max_length=8, num_ranks=2, **options)
    assert plan.ledger.tokens.emitted == 24
    assert plan.unpack(plan.gather(TOKENS)).tolist() == TOKENS.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": 5}, "groups is 5 but must have a label for each sequence"),
        ({"groups": np.array(5)}, "groups is array.5. but must have a label"),
        ({"kinds": "abcabc"}, "kinds is 'abcabc' but must have a label"),
        (
            {"groups": {1, 2, 3, 4, 5, 6}},
            "groups is {1, 2.* but must have a label .* in their orde",
        ),
        (
            {"kinds": dict.fromkeys(range(6))},
            "kinds is {0: None.* but must have a label .* in their",
        ),
        ({"kinds": [float("nan")] * 6}, "^kinds has the label nan for sequence 0; use None"),
        ({"groups": [[1]] * 6}, "groups has a label that cannot be compared"),
        ({"budgets": [("images", 5)]}, "budgets is .* but must be a mapping"),
        ({"budgets": {"images": 5}}, "budgets.'images'. is 5 but must be .numbers, limit."),
        ({"budgets": {"images": [1] * 6}}, "must be .numbers, limit."),
        ({"cost": (1e308, 1e308)}, "the costs of the sequences sum to inf"),
        ({"cost": (10**400, 1)}, "linear 1000.* but it must be finite"),
        ({"cost": lambda lengths: np.full(len(lengths), 1e308)}, "sum to inf"),
        ({"cost": lambda lengths: [[1], [1, 2]]}, "must return one number for each"),
        ({"shapes": np.array([[4, 8]])}, "shapes is "),
        ({"min_micro_steps": 10**12}, "1000000000000 micro-steps of 1 ranks .* for 6 sequences"),
        ({"num_ranks": 10**12}, "of 1000000000000 ranks .* for 6 sequences"),
        ({"align_rows": 2**62, "max_length": 2**62, "min_micro_steps": 4}, "align_rows"),
        ({"align": 2**50, "max_length": 2**62}, "align=1125899906842624"),
        ({"max_length": 2**52, "align": 3 * 2**50}, "align=3377699720527872"),
    ],
)
def test_odd_options_are_errors_that_name_the_value(options, message):
    with pytest.raises(InvalidOption, match=message):
        quire.pack_step(LENGTHS, **{"max_length": 18, **options})


def test_more_pieces_than_a_step_can_have_are_refused():
    with pytest.raises(InvalidLengths, match="562949953421312 pieces"):
        quire.pack_step([2**50], max_length=2, overlong="split")


def test_shapes_may_be_given_as_an_array_or_a_tensor():
    for shapes in ([4, 8], np.array([4, 8]), torch.tensor([4, 8])):
        plan = quire.pack_step(LENGTHS, max_length=8, shapes=shapes)
        assert plan.row_lengths.tolist() == [[8, 8, 8]]
    for shapes in (1, np.array(1), torch.tensor(1)):
        assert quire.pack_step(LENGTHS, max_length=8, shapes=shapes).num_micro_steps == 3


def test_many_micro_steps_more_than_needed_are_planned_at_once():
    kinds = [0, 1] * 50
    plan = quire.pack_step([4] * 100, max_length=8, min_micro_steps=100_000, kinds=kinds)
    assert plan.num_micro_steps == 100_000
    assert len(plan.dummies) == 99_900


def test_the_config_of_a_vision_language_model_costs_what_its_text_model_costs():
    from transformers import Qwen2VLConfig

    config = Qwen2VLConfig(text_config={"hidden_size": 64, "num_hidden_layers": 2})
    assert model_cost(config) == model_cost(config.get_text_config())


def test_a_group_that_fits_only_if_its_largest_budgets_come_first_finds_its_micro_step():
    plan = quire.pack_step(
        [1, 4, 4, 1],
        max_length=8,
        align=4,
        num_ranks=2,
        groups=[0] * 4,
        groups_share="micro_step",
        budgets={"images": ([2, 1, 1, 2], 3)},
    )
    assert plan.num_micro_steps == 1


def test_rows_of_one_token_sequences_must_say_what_their_values_are():
    with_empty = quire.pack_step([1, 0, 1], max_length=8)
    rewards = with_empty.gather(np.array([5, 6, 7]))
    with pytest.raises(InvalidOption, match="say per='token' or per='sequence'"):
        with_empty.unpack(rewards)
    assert with_empty.unpack(rewards, per="sequence", fill=-1).tolist() == [5, -1, 7]
    assert with_empty.unpack(rewards, per="token").tolist() == [5, 7]
    split = quire.pack_step([3, 1], max_length=1, overlong="split")
    with pytest.raises(InvalidOption, match="say per='token' or per='sequence'"):
        split.unpack(split.gather(np.array([5.0, 6.0])))


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize(
    ("dtype", "value", "fits"),
    [
        ("uint8", -1, False),
        ("uint8", 255, True),
        ("int64", float("nan"), False),
        ("int64", 1.5, False),
        ("int64", -100.0, True),
        ("bool", -100, False),
        ("bool", True, True),
        ("float32", float("nan"), True),
        ("float32", "x", False),
        ("int64", None, False),
    ],
)
def test_padding_is_the_value_that_was_asked_for_or_an_error(kind, dtype, value, fits):
    plan = quire.pack_step([3, 20], max_length=8, align=4, overlong="drop")
    values = kind(np.ones(23, dtype=dtype))
    calls = {
        "pad": lambda: plan.gather(values, 0, 0, pad=value)[3:],
        "fill": lambda: plan.unpack(plan.gather(values), fill=value)[3:],
    }
    for name, call in calls.items():
        if fits:
            padding = call()
            assert padding.dtype == values.dtype
            assert np.array_equal(np.asarray(padding, float), [value] * len(padding), True)
        else:
            with pytest.raises(InvalidOption, match=rf"{name} is .* but the values are .*{dtype}"):
                call()


def test_a_mask_may_have_any_form_that_values_may_have():
    flat = (TOKENS % 3 > 0).astype(float)
    parts = [torch.as_tensor(part) for part in np.split(flat, np.cumsum(LENGTHS)[:-1])]
    expected = PLAN.loss_weights("sequences", flat)
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    gradient = torch.tensor(flat, requires_grad=True)
    for mask in (parts, [part.tolist() for part in parts], jagged, gradient, flat > 0, list(flat)):
        assert np.array_equal(PLAN.loss_weights("sequences", mask), expected)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([float("nan")] * 24, "mask is nan for token 0 but a weight must be finite and >= 0"),
        ([1] * 23 + [-1], "mask is -1.0 for token 23 but"),
        (["x"] * 24, "mask: .* numbers"),
        ("x", "mask: "),
    ],
)
def test_a_mask_that_is_not_a_weight_is_an_error(mask, message):
    with pytest.raises(InvalidOption, match=message):
        PLAN.loss_weights(mask=mask)


def test_jagged_tensors_with_gaps_are_gathered_by_their_lengths():
    padded = torch.arange(42).view(6, 7)
    gaps = torch.nested.narrow(padded, 1, 0, torch.tensor(LENGTHS), layout=torch.jagged)
    kept = torch.arange(7)[None] < torch.tensor(LENGTHS)[:, None]
    assert torch.equal(PLAN.unpack(PLAN.gather(gaps)), padded[kept])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PLAN.unpack(None), "rows_of_values is None but must be a list of rows"),
        (lambda: PLAN.unpack(a_batch_of_one()), r"its shape is \(1, 7\), so pass row\[0\]"),
        (lambda: PLAN.gather(TOKENS, per="rows"), "per is 'rows' but must be token or sequence"),
        (lambda: PLAN.gather([[0] * n for n in LENGTHS], per="x"), "per is 'x' but must be"),
        (lambda: PLAN.unpack(PLAN.gather(TOKENS), per="x"), "per is 'x' but must be"),
        (lambda: PLAN.unpack(PLAN.gather(np.ones(6)), layout="x"), "layout is 'x'"),
        (lambda: PLAN.gather([[1], [1, 2]]), "values cannot be read as one array"),
        (lambda: PLAN.gather([torch.ones(1), torch.ones(2)]), "cannot be read as one array"),
        (
            lambda: PLAN.gather(of_two_libraries()),
            "type Tensor and some ndarray; pass .* one library",
        ),
        (lambda: PLAN.gather(of_two_widths()), r"shapes \(2,\) and \(1,\)"),
        (
            lambda: PLAN.unpack(rows_of_two_libraries()),
            "type Tensor and some ndarray; pass .* one library",
        ),
        (lambda: PLAN.unpack({0: [1], 1: [2]}), "rows_of_values is {0.* but must be a list of row"),
        (
            lambda: PLAN.unpack([{0: 1, 1: 2}, [1, 2]]),
            "rows of rank 0 are {0: 1, 1: 2} but must be",
        ),
        (lambda: PLAN.unpack([5, 5]), "rows of rank 0 are 5 but must be a list"),
        (lambda: PLAN.unpack([5, 5], 1), "row 0 is a single value but 6 tokens"),
        (lambda: PLAN.gather(jagged(24).transpose(1, 2)), "ragged in dimension 2"),
        (lambda: PLAN.gather(jagged(3), per="sequence"), "jagged .* per token, not per='sequence'"),
    ],
)
def test_values_of_another_form_are_errors(call, message):
    with pytest.raises(InvalidOption, match=message):
        call()


def of_two_libraries():
    return [torch.ones(length) if length % 2 else np.ones(length) for length in LENGTHS]


def rows_of_two_libraries():
    return [[np.ones(7), torch.ones(5)], [np.ones(6), torch.ones(6)]]


def of_two_widths():
    return [np.ones((length, 1 + length % 2)) for length in LENGTHS]


def a_batch_of_one():
    return [[torch.ones(1, int(length)) for length in rank] for rank in PLAN.row_lengths]


def test_a_row_of_given_shapes_that_is_too_short_names_the_shapes():
    with pytest.raises(OversizedDocument, match=r"holds 5; .* or raise the largest of shapes"):
        quire.pack_step(LENGTHS, max_length=8, shapes=[4, 5])


def test_a_group_too_large_for_a_micro_step_is_refused_in_the_words_of_the_guide():
    options = {"groups": [0] * 6, "groups_share": "micro_step"}
    with pytest.raises(OversizedDocument, match="does not fit into a micro-step of 2 rows of 8"):
        quire.pack_step(LENGTHS, max_length=8, num_ranks=2, **options)


def jagged(width):
    parts = [torch.ones(length, width) for length in LENGTHS]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


def test_the_rows_of_the_only_rank_unpack_to_its_sequences_like_those_of_any_rank():
    plan = quire.pack_step([3, 0, 9, 2], max_length=8, overlong="drop")
    rows = plan.gather(np.arange(14))
    assert plan.sequences(0).tolist() == [0, 3]
    assert plan.unpack(rows[0], rank=0).tolist() == [0, 1, 2, 12, 13]
    assert plan.unpack(rows, fill=-1).tolist() == [0, 1, 2, *[-1] * 9, 12, 13]
