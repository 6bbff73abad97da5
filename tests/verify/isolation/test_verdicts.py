"""What decides between a leak and rounding, the mode of the model, and remedies that are proven."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from tests.verify.isolation.callables import Averager, BatchMixer
from tests.verify.isolation.models import (
    boundaries,
    collate,
    model,
    rows,
    segment_batch,
    vision_model,
    without_use_cache,
)

from quire.verify import check_isolation
from quire.verify.isolation.effects import halvings
from quire.verify.isolation.report import Document

SEGMENTS = boundaries().segment_ids()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_experts_that_drop_tokens_over_a_shared_capacity_leak(dtype):
    mixer = BatchMixer("experts").to(dtype)
    report = check_isolation(mixer, segment_batch())
    assert (report.verdict, report.isolated) == ("leak", False)
    # No gradient tells of it, and in bfloat16 it is smaller than rounding may be.
    assert {pair.gradient for pair in report.pairs if pair.kind == "leak"} == {0.0}
    if dtype == torch.bfloat16:
        small = [pair for pair in report.pairs if 0 < pair.difference < report.tolerance]
        assert max(pair.float32_difference for pair in small) > 1e-3
    assert {parameter.dtype for parameter in mixer.parameters()} == {dtype}


@pytest.mark.parametrize("factor", [1.25, 2.4, 2.8])
def test_an_expert_capacity_in_training_mode_leaks_even_if_it_is_generous(factor):
    mixer = BatchMixer("experts", training_factor=factor)
    assert check_isolation(mixer.train(), segment_batch()).verdict == "leak"
    assert check_isolation(mixer.eval(), segment_batch()).isolated


class RoundedBatch(Averager):
    """Rounding, of the model's own dtype, that depends on the whole batch, as in fused kernels."""

    def forward(self, input_ids, segment_ids):
        mean = super().forward(input_ids, segment_ids)
        shift = self.table(input_ids).detach().mean().abs() + 1
        return mean + (mean.detach() * shift / shift - mean.detach())


def test_rounding_in_16_bits_that_shrinks_in_float32_is_noise():
    report = check_isolation(RoundedBatch().bfloat16(), segment_batch())
    assert (report.verdict, report.isolated) == ("noise", True)
    assert all(pair.float32_difference < 1e-5 < pair.difference for pair in report.pairs)


def test_a_callable_in_16_bits_that_cannot_be_widened_is_unproven():
    rounded = RoundedBatch().bfloat16()
    report = check_isolation(rounded.forward, segment_batch(), embedding=rounded.table)
    assert (report.verdict, report.isolated) == ("unproven", False)
    assert "only a torch module" in report.skipped["float32"]


def test_statistics_over_the_batch_leak_in_training_mode_and_not_in_evaluation():
    mixer = BatchMixer("norm").train()
    before = mixer.norm.running_mean.clone()
    report = check_isolation(mixer, segment_batch())
    assert (report.verdict, report.training, mixer.norm.training) == ("leak", True, True)
    assert all(pair.gradient > 0 for pair in report.pairs)
    assert torch.equal(mixer.norm.running_mean, before)
    assert mixer.norm.num_batches_tracked == 0
    assert check_isolation(mixer.eval(), segment_batch()).verdict == "isolated"


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_model_with_dropout_is_isolated_in_training_mode(name):
    training = copy.deepcopy(model(name)).train()
    state = torch.get_rng_state()
    report = check_isolation(training, collate(rows()))
    assert (report.verdict, report.training, report.skipped) == ("isolated", True, {})
    assert training.training
    assert torch.equal(torch.get_rng_state(), state)
    ones = torch.ones_like(collate(rows())["input_ids"])
    leak = check_isolation(training, {**collate(rows()), "attention_mask": ones})
    assert (leak.verdict, leak.diagnosis.confirmed) == ("leak", True)


def test_checkpointed_layers_are_isolated_in_training_mode():
    training = copy.deepcopy(model("gpt2")).train()
    training.gradient_checkpointing_enable()
    report = check_isolation(training, collate(rows()))
    assert (report.verdict, report.skipped) == ("isolated", {})


@pytest.mark.parametrize("attention", ["transformers", "eager"])
def test_a_remedy_is_confirmed_only_if_the_whole_check_passes_with_it(attention):
    """gpt-oss hands no position_ids to its masks, and a mask without its windows alters it."""
    found = check_isolation(model("gpt_oss", "eager"), collate(rows(), attention=attention))
    assert found.verdict == {"transformers": "leak", "eager": "altered"}[attention]
    assert found.diagnosis.confirmed
    assert "windows={'full_attention': None, 'sliding_attention': 4}" in found.diagnosis.remedy
    windows = {"full_attention": None, "sliding_attention": 4}
    cured = collate(rows(), attention="eager", windows=windows)
    assert check_isolation(model("gpt_oss", "eager"), cured).isolated


def test_a_cause_without_a_remedy_is_not_confirmed():
    """A mask of ones is passed, but without it the model leaks as well."""
    batch = collate(rows(), attention=None) | {"use_cache": False}
    ones = torch.ones_like(batch["input_ids"])
    report = check_isolation(model("mamba", "eager"), {**batch, "attention_mask": ones})
    assert (report.verdict, report.diagnosis.confirmed) == ("leak", False)


def test_use_cache_of_a_vision_model_is_read_from_its_text_config():
    batch = collate(rows())
    four = {**batch, "position_ids": batch["position_ids"].expand(4, -1, -1)}
    report = check_isolation(vision_model(), without_use_cache(four), segment_ids=SEGMENTS)
    assert (report.verdict, report.diagnosis.confirmed) == ("leak", True)
    assert report.diagnosis.cause.startswith("use_cache is on")


def test_an_effect_of_two_documents_together_is_a_leak_of_both():
    batch = segment_batch()
    first, third = batch["input_ids"][0, 0].item(), batch["input_ids"][0, 12].item()

    def watches_two(input_ids, segment_ids):
        both = input_ids[0, 0] != first and input_ids[0, 12] != third
        logits = averager(input_ids, segment_ids)
        return logits + (segment_ids == 2)[..., None] * float(both)

    averager = Averager()
    report = check_isolation(watches_two, batch, embedding=averager.table)
    assert report.verdict == "leak"
    sources = {(pair.source.row, pair.source.number) for pair in report.pairs}
    assert {(0, 1), (0, 3)} <= sources


class JointEffect(Averager):
    """Two documents together change a third; `rounding` of each changes the first of every row."""

    def __init__(self, effect, rounding):
        super().__init__()
        self.effect, self.rounding = effect, rounding
        batch = segment_batch()["input_ids"]
        self.unchanged = batch[0, 0].item(), batch[0, 12].item()

    def forward(self, input_ids, segment_ids):
        logits = super().forward(input_ids, segment_ids)
        both = input_ids[0, 0] != self.unchanged[0] and input_ids[0, 12] != self.unchanged[1]
        noise = self.rounding * torch.finfo(logits.dtype).eps * input_ids.sum()
        first, second = ((segment_ids == number)[..., None] for number in (1, 2))
        return logits + second * self.effect * float(both) + first * noise


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rounding_does_not_hide_an_effect_of_two_documents_together(dtype):
    """Whether single documents round differently depends on the CPU; the verdict must not."""
    report = check_isolation(JointEffect(0.05, rounding=0.02).to(dtype), segment_batch())
    assert report.verdict == "leak"
    assert {pair.target.number for pair in report.pairs if pair.kind == "leak"} == {2}
    only_rounding = check_isolation(JointEffect(0.0, rounding=0.02).to(dtype), segment_batch())
    assert only_rounding.verdict == "noise"


@pytest.mark.parametrize("count", [2, 3, 7, 8, 33])
def test_any_two_documents_are_separated_by_one_of_few_groups(count):
    documents = [Document(row=row, number=1, start=0, stop=1) for row in range(count)]
    groups = list(halvings(documents))
    assert len(groups) <= 2 * math.ceil(math.log2(count))
    for one, other in itertools.permutations(documents, 2):
        assert any(one in group and other not in group for group in groups)
