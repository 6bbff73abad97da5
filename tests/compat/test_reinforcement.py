"""RL systems' functions: what they promise, and TRL's real one on the same batch."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quire.compat import reinforcement as rl
from quire.errors import InvalidOption, QuireError

LENGTHS = np.random.default_rng(0).integers(1, 100, 24)


def padded(lengths):
    mask = torch.arange(int(max(lengths)))[None] < torch.as_tensor(lengths)[:, None]
    ids = torch.arange(mask.numel()).view(mask.shape)
    return {"input_ids": ids * mask, "attention_mask": mask.long()}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_batches_divided_by": 4},
        {"min_num_micro_batch": 20},
        {"force_group_size": 2, "max_token_len": 256},
        {"use_dynamic_bsz_balance": False},
    ],
)
def test_micro_batches_hold_every_sample_once_within_the_budget(options):
    batch, budget = padded(LENGTHS), options.get("max_token_len", 128)
    batches, indices = rl.rearrange_micro_batches(batch, **{"max_token_len": budget, **options})
    assert sorted(chain.from_iterable(indices)) == list(range(24))
    assert max(LENGTHS[index].sum() for index in indices) <= budget
    assert len(batches) % options.get("num_batches_divided_by", 1) == 0
    assert len(batches) >= options.get("min_num_micro_batch", 1)
    for micro_batch, index in zip(batches, indices, strict=True):
        for name, values in batch.items():
            assert torch.equal(micro_batch[name], values[index])
        if "force_group_size" in options:
            assert {n // 2 * 2 for n in index} | {n // 2 * 2 + 1 for n in index} == set(index)


def test_micro_batches_of_a_jagged_batch_are_jagged():
    parts = [torch.arange(length) for length in (3, 5, 2)]
    batch = {"input_ids": torch.nested.nested_tensor(parts, layout=torch.jagged)}
    batches, indices = rl.rearrange_micro_batches(batch, 5)
    found = [[part.tolist() for part in each["input_ids"].unbind()] for each in batches]
    assert found == [[parts[n].tolist() for n in index] for index in indices]


def test_positions_of_several_dimensions_stay_jagged_in_their_last_one():
    lengths, parts = [3, 5, 2], [torch.arange(4 * n).view(4, n) for n in (3, 5, 2)]
    flat = torch.nested.nested_tensor([part.T for part in parts], layout=torch.jagged)
    ids = torch.nested.nested_tensor([torch.arange(n) for n in lengths], layout=torch.jagged)
    batch = {"input_ids": ids, "position_ids": flat.transpose(1, 2)}
    batches, indices = rl.rearrange_micro_batches(batch, 5)
    for each, index in zip(batches, indices, strict=True):
        found = each["position_ids"]
        assert found.shape[:2] == (len(index), 4)
        assert all(map(torch.equal, found.unbind(), [parts[n] for n in index]))
        assert each["input_ids"].offsets().tolist() == found.offsets().tolist()


def test_what_a_tensordict_holds_for_the_whole_batch_stays_as_it_is():
    """As verl's settings of a batch, whose shape is empty, and its lists, with a shape."""
    samples = np.array(["a", "b", "c"])
    batch = {**padded([3, 5, 2]), "setting": np.array(7), "names": samples}
    batches, indices = rl.rearrange_micro_batches(batch, 5)
    for each, index in zip(batches, indices, strict=True):
        assert each["setting"] == 7
        assert each["names"].tolist() == samples[index].tolist()


def test_a_real_tensordict_is_divided_as_verl_divides_it():
    tensordict = pytest.importorskip("tensordict")
    data = {
        **padded([3, 5, 2]),
        "setting": tensordict.NonTensorData(7),
        "names": tensordict.NonTensorStack("a", "b", "c"),
    }
    batch = tensordict.TensorDict(data, batch_size=[3])
    batches, indices = rl.rearrange_micro_batches(batch, 5)
    for each, index in zip(batches, indices, strict=True):
        assert each.batch_size == (len(index),)
        assert each["setting"] == 7
        assert list(each["names"]) == ["abc"[n] for n in index]
        assert torch.equal(each["input_ids"], batch["input_ids"][index])


def test_more_micro_batches_than_samples_are_refused():
    with pytest.raises(InvalidOption, match="30 micro-batches are needed but a rank has only 24"):
        rl.rearrange_micro_batches(padded(LENGTHS), 128, min_num_micro_batch=30)


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        ([5, 200, 7, 9], {}, "a sample or a group of 1 has 200 tokens on some rank but a micro-b"),
        ([100, 100, 7, 9], {"force_group_size": 2}, "a group of 2 has 200 tokens on some rank"),
        ([5, 6, 7], {"force_group_size": 2}, "the batch has 3 samples but must have a multiple"),
    ],
)
def test_batches_that_do_not_fit_are_refused(lengths, options, message):
    with pytest.raises(QuireError, match=message):
        rl.rearrange_micro_batches(padded(lengths), 128, **options)


def _on_a_rank(rank, address, lengths, results):
    torch.distributed.init_process_group("gloo", address, rank=rank, world_size=2)
    group = torch.distributed.group.WORLD
    try:
        _, indices = rl.rearrange_micro_batches(padded(lengths[rank]), 128, group)
        results[rank] = len(indices)
    except QuireError as error:
        results[rank] = str(error)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([[100, 90, 80, 20], [30, 30, 30, 30]], 3),
        ([[100, 90], [200, 30]], "a sample or a group of 1 has 200 tokens on some rank"),
        ([[100, 90, 80], [30, 30]], "3 micro-batches are needed but a rank has only 2"),
    ],
)
def test_ranks_agree_on_the_number_of_micro_batches_and_on_errors(lengths, expected, tmp_path):
    context = torch.multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        results = manager.dict()
        address = f"file://{tmp_path}/ranks"
        ranks = [
            context.Process(target=_on_a_rank, args=(rank, address, lengths, results))
            for rank in (0, 1)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        found = dict(results)
    assert set(found) == {0, 1}
    for result in found.values():
        assert result == expected if isinstance(expected, int) else result.startswith(expected)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=40), st.integers(1, 8), st.booleans())
def test_partitions_hold_every_index_once_and_none_is_empty(lengths, k, equal):
    if len(lengths) < k or (equal and len(lengths) % k):
        with pytest.raises(InvalidOption, match="cannot be divided"):
            rl.get_seqlen_balanced_partitions(lengths, k, equal)
        return
    partitions = rl.get_seqlen_balanced_partitions(lengths, k, equal)
    assert sorted(chain.from_iterable(partitions)) == list(range(len(lengths)))
    assert all(part == sorted(part) and part for part in partitions)
    assert len(partitions) == k
    assert not equal or {len(part) for part in partitions} == {len(lengths) // k}


def test_bins_follow_nemo_rls_rules_and_those_of_one_micro_step_cost_the_same():
    packer = rl.get_packer("MODIFIED_FIRST_FIT_DECREASING", 128, bin_count_multiple=4)
    bins = packer.pack(LENGTHS.tolist())
    assert sorted(chain.from_iterable(bins)) == list(range(24))
    assert len(bins) % 4 == 0
    sums = np.array([LENGTHS[part].sum() for part in bins]).reshape(-1, 4)
    assert sums.max() <= 128
    assert sums.max(axis=1).sum() <= 1.05 * sums.mean(axis=1).sum()
    with pytest.raises(InvalidOption, match="8 bins are needed for 4 ranks but there are only 5"):
        rl.get_packer("x", 10, bin_count_multiple=4).pack([10] * 5)


@pytest.fixture(scope="module")
def model():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=50, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config).double().eval()


@pytest.mark.slow
def test_packed_log_probs_are_those_of_trls_padded_forward(model):
    from trl.trainer.grpo_trainer import GRPOTrainer

    torch.manual_seed(1)
    prompts, completions = torch.tensor([2, 5, 3, 5]), torch.tensor([7, 1, 9, 4])
    # As TRL pads them: prompts on the left, completions on the right.
    places = torch.arange(14)
    mask = (places >= 5 - prompts[:, None]) & (places < 5 + completions[:, None])
    ids = torch.randint(0, 50, mask.shape) * mask

    def trl_model(labels, *, fused_lm_head, **inputs):
        assert fused_lm_head
        positions = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
        logits = model(**inputs, position_ids=positions).logits.log_softmax(-1)
        chosen = logits[:, :-1].gather(-1, inputs["input_ids"][:, 1:, None])[..., 0]
        log_probs = torch.cat([chosen.new_zeros(len(chosen), 1), chosen], 1)
        return SimpleNamespace(log_probs=log_probs.masked_fill(labels == -100, 0))

    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(autocast=nullcontext, is_main_process=False)
    )
    expected, _, _ = GRPOTrainer._get_per_token_logps_and_entropies(
        trainer, trl_model, ids, mask.long(), logits_to_keep=9
    )

    def row_log_probs(row, positions):
        logits = model(input_ids=row[None], position_ids=positions[None], use_cache=False).logits
        chosen = logits[0, :-1].log_softmax(-1).gather(-1, row[1:, None])[:, 0]
        return torch.cat([chosen.new_zeros(1), chosen])

    found = rl.packed_log_probs(row_log_probs, ids, mask, 9, max_length=16)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 1e-12


def test_samples_without_tokens_are_in_a_micro_batch_too():
    lengths = [15, 0, 12, 2, 6, 0]
    batch = padded(lengths)
    batches, indices = rl.rearrange_micro_batches(batch, 16)
    assert sorted(chain.from_iterable(indices)) == list(range(6))
    assert sum(len(part["input_ids"]) for part in batches) == 6
    bins = rl.get_packer(bin_capacity=16).pack(lengths)
    assert sorted(chain.from_iterable(bins)) == list(range(6))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rl.get_seqlen_balanced_partitions([1, 2], 0, True), "k_partitions is 0"),
        (lambda: rl.get_seqlen_balanced_partitions([-1, 2], 2, True), "length -1"),
        (lambda: rl.rearrange_micro_batches(padded([2]), 4, force_group_size=0), "force_group_siz"),
        (
            lambda: rl.packed_log_probs(
                lambda ids, _: ids.double(),
                *padded([2, 3]).values(),
                4,
                max_length=8,
            ),
            "logits_to_keep is 4 but must be at most 3",
        ),
        (lambda: rl.get_packer(bin_capacity=8).pack([-1, 3]), "length -1"),
    ],
)
def test_arguments_that_make_no_sense_are_errors_that_name_them(call, message):
    with pytest.raises(QuireError, match=message):
        call()
