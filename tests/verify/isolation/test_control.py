"""The positive control: a model whose tokens ignore their own document proves nothing."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from tests.verify.isolation.callables import WIDTH, Averager
from tests.verify.isolation.models import boundaries, model, segment_batch

from quire.verify import IsolationOptions, check_isolation
from quire.verify.isolation.causal_lm import CallOptions, check_call
from quire.verify.isolation.effects import halves
from quire.verify.isolation.report import Document, IsolationReport

SEGMENTS = boundaries().segment_ids()
LEAKING = CallOptions(with_attention_mask=True)


class Tokenwise(torch.nn.Module):
    """Logits of each token alone, plus what `noise` makes of all tokens of the batch."""

    def __init__(self, noise: float = 0.0, across_rows: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(64, WIDTH)
        self.noise, self.across_rows = noise, across_rows

    def forward(self, input_ids, segment_ids):
        embedded = self.table(input_ids)
        above = embedded.roll(1, dims=0).mean(dim=1, keepdim=True)
        return embedded + self.noise * embedded.detach().mean() + self.across_rows * above


class DetachedAverager(Averager):
    """An Averager through which no gradient goes from token to token."""

    def forward(self, input_ids, segment_ids):
        embedded = self.table(input_ids)
        return embedded + super().forward(input_ids, segment_ids).detach()


def zeroed(part: str) -> torch.nn.Module:
    """A llama in which the weights whose name holds this are zero, as some recipes start."""
    changed = copy.deepcopy(model("llama"))
    with torch.no_grad():
        for name, parameter in changed.named_parameters():
            if part in name:
                parameter.zero_()
    return changed


def batch_of(lengths: list[list[int]]) -> dict:
    """Random tokens in documents of these lengths; the rows are of one length."""
    segments = np.array([np.repeat(np.arange(1, len(row) + 1), row) for row in lengths])
    tokens = np.random.default_rng(0).integers(0, 64, segments.shape)
    return {"input_ids": torch.from_numpy(tokens), "segment_ids": torch.from_numpy(segments)}


def test_a_leak_is_visible_with_random_weights():
    report = check_call(model("llama"), LEAKING)
    assert (report.verdict, report.dependence) == ("leak", "shown")


@pytest.mark.parametrize("part", ["lm_head", "o_proj", "v_proj"])
@pytest.mark.parametrize("call", [CallOptions(), LEAKING], ids=["apart", "leaking"])
def test_zero_weights_prove_nothing_about_any_call(part, call):
    report = check_call(zeroed(part), call)
    assert (report.verdict, report.isolated) == ("unproven", False)
    assert (report.dependence, report.pairs) == ("none", ())
    assert "does not depend on earlier tokens at all" in report.diagnosis.cause
    assert "trained or random weights" in report.diagnosis.remedy
    assert "nothing is proven" in report.meaning


def test_one_layer_that_attends_to_earlier_tokens_is_enough():
    report = check_call(zeroed("layers.0.self_attn.o_proj"), CallOptions())
    assert (report.verdict, report.dependence) == ("isolated", "shown")
    leak = check_call(zeroed("layers.0.self_attn.o_proj"), LEAKING)
    assert leak.verdict == "leak"


@pytest.mark.parametrize("gradients", [True, False])
def test_a_callable_that_treats_each_token_by_itself_proves_nothing(gradients):
    options = IsolationOptions(gradients=gradients)
    report = check_isolation(Tokenwise(), segment_batch(), options=options)
    assert (report.verdict, report.dependence) == ("unproven", "none")


def test_kernel_noise_does_not_count_as_a_dependence_on_earlier_tokens():
    report = check_isolation(Tokenwise(noise=1e-6), segment_batch())
    assert (report.verdict, report.dependence) == ("unproven", "none")
    assert {pair.kind for pair in report.pairs} == {"unproven"}
    assert "no gradient goes from a later token" in report.skipped["gradients"]


def test_an_effect_on_other_documents_only_is_still_a_leak():
    report = check_isolation(Tokenwise(across_rows=1e-6), segment_batch())
    assert (report.verdict, report.dependence) == ("leak", "none")
    assert all(pair.source.row != pair.target.row for pair in report.pairs)
    assert all(pair.gradient > 0 for pair in report.pairs)


def test_gradients_that_never_leave_a_token_prove_nothing_if_bits_differ():
    apart = check_isolation(DetachedAverager(), segment_batch())
    assert (apart.verdict, apart.dependence) == ("isolated", "shown")
    assert "no gradient goes from a later token" in apart.skipped["gradients"]
    noisy = check_isolation(DetachedAverager(leak=1e-6), segment_batch())
    assert (noisy.verdict, noisy.dependence) == ("unproven", "shown")
    assert {(pair.kind, pair.gradient) for pair in noisy.pairs} == {("unproven", None)}


def test_documents_of_one_token_do_not_invalidate_a_proof():
    report = check_isolation(Averager(), batch_of([[1, 1, 2, 1], [1, 1, 1, 2]]))
    assert (report.verdict, report.dependence, report.skipped) == ("isolated", "shown", {})


def test_a_document_without_a_visible_dependence_does_not_invalidate_a_proof():
    def first_is_deaf(input_ids, segment_ids):
        deaf = (segment_ids == 1)[..., None]
        logits = Averager()(input_ids, segment_ids)
        return torch.where(deaf, torch.zeros_like(logits), logits)

    report = check_isolation(first_is_deaf, segment_batch())
    assert (report.verdict, report.dependence) == ("isolated", "shown")


def test_a_batch_of_single_tokens_proves_nothing():
    report = check_isolation(Averager(), batch_of([[1, 1, 1], [1, 1, 1]]))
    assert (report.verdict, report.dependence) == ("unproven", "untestable")
    assert "two tokens or more" in report.diagnosis.remedy
    assert "this batch" in report.meaning


def test_a_leak_among_single_tokens_is_still_a_leak():
    report = check_isolation(Averager(leak=0.1), batch_of([[1, 1, 1], [1, 1, 1]]))
    assert (report.verdict, report.dependence) == ("leak", "untestable")


def test_a_dependence_within_rounding_counts_without_gradients():
    options = IsolationOptions(gradients=False, tolerance=10.0)
    report = check_isolation(Averager(), segment_batch(), options=options)
    assert (report.verdict, report.dependence) == ("isolated", "shown")


class Swallower(Averager):
    """Earlier tokens weigh so little that rounding hides them, and only gradients show them."""

    def forward(self, input_ids, segment_ids):
        # Whole numbers have no room for what is added.
        whole = self.table(input_ids).detach().round().add(8) + 0 * self.table(input_ids)
        return whole + 1e-12 * super().forward(input_ids, segment_ids)


def test_a_dependence_that_rounding_hides_is_shown_by_gradients():
    apart = check_isolation(Swallower(), segment_batch())
    assert (apart.verdict, apart.dependence, apart.skipped) == ("isolated", "shown", {})
    leak = check_isolation(Swallower(leak=1.0), segment_batch())
    assert (leak.verdict, {pair.difference for pair in leak.pairs}) == ("leak", {0.0})
    options = IsolationOptions(gradients=False)
    blind = check_isolation(Swallower(leak=1.0), segment_batch(), options=options)
    assert (blind.verdict, blind.dependence) == ("unproven", "none")


class HalfDeaf(Averager):
    """The later tokens of the first document of every row are zero, whatever came before."""

    def forward(self, input_ids, segment_ids):
        deaf = (segment_ids == 1) & (torch.arange(input_ids.shape[1]) > 0)
        return super().forward(input_ids, segment_ids).masked_fill(deaf[..., None], 0.0)


def test_a_part_without_gradients_does_not_invalidate_the_others():
    report = check_isolation(HalfDeaf(), segment_batch())
    assert (report.verdict, report.dependence, report.skipped) == ("isolated", "shown", {})


def test_an_isolated_call_costs_logarithmically_many_passes():
    calls = []

    def counted(**batch):
        calls.append(torch.is_grad_enabled())
        return averager(**batch)

    averager = Averager()
    check_isolation(counted, segment_batch(), embedding=averager.table)
    # Twice the batch, 6 halvings of 7 documents and padding, 6 alone, one for the control;
    # gradients of all documents in one call, and one for the control.
    assert (calls.count(False), calls.count(True)) == (2 + 6 + 6 + 1, 1 + 1)


def test_unproven_has_priority_over_altered():
    def counts_on(input_ids, segment_ids):
        places = torch.arange(input_ids.shape[1]).expand_as(input_ids)
        return torch.stack([input_ids, places], dim=-1).double()

    report = check_isolation(counts_on, segment_batch())
    assert (report.verdict, report.dependence) == ("unproven", "none")
    assert report.altered  # reported all the same


def test_json_reports_have_the_dependence_and_old_ones_may_lack_it():
    fields = json.loads(check_isolation(Averager(), segment_batch()).to_json())
    assert fields.pop("dependence") == "shown"
    old = {name: fields[name] for name in fields if name not in ("isolated", "meaning")}
    assert IsolationReport(**old).dependence == "shown"


@pytest.mark.parametrize(
    ("length", "keep", "split"),
    [
        (2, (), 1),
        (3, (), 1),
        (7, (), 3),
        (7, (0, 1, 2, 3), 5),  # of 4 and 5, which may change and have something after them
        (3, (0,), 2),
        (1, (), None),
        (3, (0, 1), None),  # the only token that may change is the last
    ],
)
def test_a_document_is_split_after_a_token_that_may_change(length, keep, split):
    batch = {"input_ids": np.arange(length)[None]}
    document = Document(row=0, number=1, start=0, stop=length)
    found = halves(batch, document, keep)
    assert (None if found is None else (found[0].stop, found[1].start, found[1].stop)) == (
        None if split is None else (split, split, length)
    )
