"""gather and unpack: literal rows, then exact inverses for every kind of values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import quire
from quire.errors import InvalidOption

LENGTHS = [5, 3, 4, 4, 2, 6]
PLAN = quire.pack_step(LENGTHS, max_length=8, num_ranks=2)
TOKENS = np.concatenate([100 * n + np.arange(length) for n, length in enumerate(LENGTHS)])


def test_a_row_holds_the_tokens_of_its_sequences_one_after_another():
    plan = quire.pack_step([3, 2, 4], max_length=5, num_ranks=1)
    assert [plan.row(0, step).tolist() for step in (0, 1)] == [[0, 1], [2]]
    tokens = np.array([10, 11, 12, 20, 21, 30, 31, 32, 33])
    assert plan.gather(tokens, 0, 0).tolist() == [10, 11, 12, 20, 21]
    assert plan.gather([7, 8, 9], 0, 0).tolist() == [7, 8]
    assert plan.position_ids(0, 0).tolist() == [0, 1, 2, 0, 1]
    assert plan.cu_seqlens(0, 0).tolist() == [0, 3, 5]


def kinds_of_values():
    parts = np.split(TOKENS, np.cumsum(LENGTHS)[:-1])
    tensors = [torch.as_tensor(part) for part in parts]
    yield "array", TOKENS, TOKENS
    yield "matrix", np.stack([TOKENS, -TOKENS], 1), np.stack([TOKENS, -TOKENS], 1)
    yield "mask", TOKENS % 2 == 0, TOKENS % 2 == 0
    yield "list of arrays", parts, TOKENS
    yield "list of lists", [part.tolist() for part in parts], TOKENS
    yield "tensor", torch.as_tensor(TOKENS), torch.as_tensor(TOKENS)
    yield "list of tensors", tensors, torch.as_tensor(TOKENS)
    jagged = torch.nested.nested_tensor(tensors, layout=torch.jagged)
    yield "jagged", jagged, torch.as_tensor(TOKENS)
    yield "strided nested", torch.nested.nested_tensor(tensors), torch.as_tensor(TOKENS)
    yield "per sequence", np.arange(6.0), np.arange(6.0)
    yield "list of numbers", [1, 2, 3, 4, 5, 6], np.arange(1, 7)
    yield "tensor per sequence", torch.arange(6.0), torch.arange(6.0)
    yield "vectors per sequence", torch.ones(6, 3), torch.ones(6, 3)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", range(13))
def test_unpack_is_the_inverse_of_gather_for_every_kind_of_values(kind):
    name, values, expected = list(kinds_of_values())[kind]
    rows = PLAN.gather(values)
    assert [len(part) for part in rows] == [PLAN.num_micro_steps] * 2, name
    assert (np.asarray(PLAN.unpack(rows)) == np.asarray(expected)).all()
    assert PLAN.unpack(rows).dtype == expected.dtype
    for rank in (0, 1):
        mine = PLAN.unpack(rows[rank], rank)
        again = PLAN.gather(values, rank)
        assert all((a == b).all() for a, b in zip(again, rows[rank], strict=True))
        chosen = PLAN.sequences(rank)
        if len(expected) == len(LENGTHS):
            assert (np.asarray(mine) == np.asarray(expected)[chosen]).all()
        else:
            parts = np.split(np.asarray(expected), np.cumsum(LENGTHS)[:-1])
            assert (np.asarray(mine) == np.concatenate([parts[n] for n in chosen])).all()


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=40),
    st.integers(1, 4),
    st.sampled_from([1, 4]),
    st.sampled_from([1, 8]),
    st.sampled_from(["error", "split", "drop"]),
)
def test_unpack_is_exact_with_padding_dummies_splits_and_drops(
    lengths, num_ranks, align, align_rows, overlong
):
    max_length = 32 if overlong == "error" else 16
    plan = quire.pack_step(
        lengths,
        max_length=max_length,
        num_ranks=num_ranks,
        align=align,
        align_rows=align_rows,
        overlong=overlong,
    )
    values = np.arange(1, sum(lengths) + 1)
    kept = np.repeat(plan.inverse >= 0, lengths)
    rows = plan.gather(values, pad=-1, per="token")
    assert (plan.unpack(rows, fill=-2, per="token") == np.where(kept, values, -2)).all()
    listed = plan.unpack(rows, per="token", layout="list")
    assert [len(part) for part in listed] == list(lengths)
    for rank in range(num_ranks):
        for step in range(plan.num_micro_steps):
            row, segments = rows[rank][step], plan.segment_ids(rank, step)
            assert len(row) == plan.row_lengths[rank, step] == len(segments)
            assert ((row == -1) == (segments == 0)).all()
            assert len(plan.position_ids(rank, step)) == len(row)


def test_rows_of_many_short_sequences_are_exact():
    lengths = np.random.default_rng(0).integers(0, 9, 3000)
    plan = quire.pack_step(lengths, max_length=1024, num_ranks=2)
    for values in (np.arange(lengths.sum()), torch.arange(int(lengths.sum()))):
        assert (plan.unpack(plan.gather(values)) == values).all()


def test_unpack_returns_a_jagged_tensor_if_asked():
    values = torch.as_tensor(TOKENS)
    jagged = PLAN.unpack(PLAN.gather(values), layout="jagged")
    assert jagged.is_nested
    assert [part.tolist() for part in jagged.unbind()] == [
        part.tolist() for part in np.split(TOKENS, np.cumsum(LENGTHS)[:-1])
    ]


@pytest.mark.parametrize("layout", ["list", "jagged"])
def test_one_ranks_pieces_of_split_sequences_are_laid_out_by_the_tokens_it_has(layout):
    plan = quire.pack_step([20, 5, 9], max_length=8, num_ranks=2, overlong="split")
    values = torch.arange(34)
    assert plan.sequences(0).tolist() == [0, 2]
    assert plan.sequences(1).tolist() == [0, 1]
    first, second = (plan.unpack(plan.gather(values, rank), rank, layout=layout) for rank in (0, 1))
    assert [part.tolist() for part in first] == [[*range(8)], [*range(25, 34)]]
    assert [part.tolist() for part in second] == [[*range(8, 20)], [*range(20, 25)]]
    if layout == "list":
        rows = plan.gather(values.numpy(), 0)
        assert [len(part) for part in plan.unpack(rows, 0, layout=layout)] == [8, 9]


@pytest.mark.parametrize("kind", [list, np.array])
def test_an_empty_list_among_sequences_does_not_decide_the_type_of_a_row(kind):
    plan = quire.pack_step([0, 3, 2], max_length=8, align=4)
    row = plan.gather([[], kind([1, 2, 3]), kind([4, 5])], 0, 0, pad=-1)
    assert row.dtype == np.int64
    assert row.tolist() == [1, 2, 3, -1, 4, 5, -1, -1]


def test_gradients_flow_through_gather_and_unpack():
    values = torch.arange(24.0, dtype=torch.float64, requires_grad=True)
    rows = PLAN.gather(values)
    weights = torch.arange(24.0, dtype=torch.float64)
    (PLAN.unpack(rows) * weights).sum().backward()
    assert torch.equal(values.grad, weights)


def test_sequences_and_tokens_are_counted_per_row_and_in_all():
    assert PLAN.num_tokens == 24
    assert PLAN.num_sequences == 6
    assert PLAN.tokens_per_row.sum() == 24
    assert PLAN.sequences_per_row.sum() == 6
    assert sorted(PLAN.permutation.tolist()) == list(range(6))
    assert PLAN.permutation[PLAN.inverse].tolist() == list(range(6))


def test_weights_make_the_sum_over_rows_the_mean_over_tokens_or_sequences():
    rng = np.random.default_rng(0)
    losses, mask = rng.random(24), rng.random(24) < 0.6
    parts = [
        (loss[kept].mean() if kept.any() else None)
        for loss, kept in zip(
            np.split(losses, np.cumsum(LENGTHS)[:-1]),
            np.split(mask, np.cumsum(LENGTHS)[:-1]),
            strict=True,
        )
    ]
    means = {
        "tokens": losses[mask].mean(),
        "sequences": np.mean([part for part in parts if part is not None]),
    }
    for mean_over, mean in means.items():
        weights = PLAN.gather(PLAN.loss_weights(mean_over, mask))
        rows = PLAN.gather(losses)
        total = sum(
            (w * x).sum()
            for a, b in zip(weights, rows, strict=True)
            for w, x in zip(a, b, strict=True)
        )
        assert abs(total - mean) < 1e-12
    assert PLAN.loss_weights().tolist() == [1 / 24] * 24


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PLAN.gather(np.arange(23)), "values have shape .23,. but the plan is for 24 tok"),
        (lambda: PLAN.gather([[1]] * 6), "sequence 0 has 1 values but was planned with 5 tokens"),
        (lambda: PLAN.gather(TOKENS, 2, 0), "rank is 2 but this plan has ranks 0 to 1"),
        (lambda: PLAN.gather(TOKENS, 0, 9), "micro_step is 9 but this plan has micro_steps 0"),
        (lambda: PLAN.unpack([[]]), "there are rows of 1 ranks but the plan has 2"),
        (lambda: PLAN.unpack([[1]], 0), "rank 0 has 1 rows but the plan has 2 micro-steps"),
        (lambda: PLAN.unpack([[[1], [2]]] * 2), "row 0 has 1 values but 7 tokens"),
        (lambda: PLAN.unpack(PLAN.gather(TOKENS), layout="x"), "layout is 'x'"),
        (lambda: PLAN.loss_weights("rows"), "mean_over is 'rows'"),
        (
            lambda: PLAN.loss_weights(mask=[1]),
            "mask: values have shape .1,. but the plan is for 24",
        ),
    ],
)
def test_values_that_do_not_belong_to_the_plan_are_errors(call, message):
    with pytest.raises(InvalidOption, match=message):
        call()


def test_values_that_could_be_either_must_say_what_they_are():
    plan = quire.pack_step([2, 0], max_length=4)
    with pytest.raises(InvalidOption, match="say per='token' or per='sequence'"):
        plan.gather(np.array([1, 2]))
    assert plan.gather(np.array([1, 2]), 0, 0, per="token").tolist() == [1, 2]
    assert plan.gather(np.array([1, 2]), 0, 0, per="sequence").tolist() == [1]


def test_a_value_per_sequence_cannot_be_unpacked_from_split_sequences():
    plan = quire.pack_step([9, 3], max_length=4, overlong="split")
    with pytest.raises(InvalidOption, match="sequence 0 was split"):
        plan.unpack(plan.gather(np.array([1.0, 2.0])))
