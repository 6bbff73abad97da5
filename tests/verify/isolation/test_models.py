"""The proof on tiny random models: what the collator emits is isolated, and each leak is caught."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.verify.isolation.models import (
    ATTENTION_MODELS,
    boundaries,
    collate,
    model,
    rows,
    vision_model,
)
from transformers import LlamaConfig, LlamaForCausalLM

from quire.errors import ModelError
from quire.masks.dense import bool_mask, float_mask
from quire.masks.flex import block_mask
from quire.verify import IsolationOptions, check_isolation

BACKENDS = ["eager", "sdpa"]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]
SEGMENTS = boundaries().segment_ids()


def assert_isolated(report, *, skipped=()):
    assert report.verdict == "isolated", report.diagnosis
    assert (report.pairs, report.altered, report.disagreements) == ((), (), ())
    assert sorted(report.skipped) == sorted(skipped)


@pytest.mark.parametrize("count", [1, 2], ids=["one_row", "two_rows"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ATTENTION_MODELS)
def test_the_default_batch_is_isolated_with_a_bare_call(name, backend, dtype, count):
    batch = collate(rows(count))
    assert_isolated(check_isolation(model(name, backend, dtype), batch))


@pytest.mark.parametrize("name", ATTENTION_MODELS)
def test_in_float64_packed_documents_match_single_ones_to_twelve_digits(name):
    options = IsolationOptions(tolerance=1e-12)
    assert_isolated(check_isolation(model(name, "sdpa", torch.float64), rows(), options=options))


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_with_a_zero_embedding_is_not_a_leak_in_a_deep_model(backend):
    """Its gradients are multiplied by every norm, until they are no numbers."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 259, "hidden_size": 32, "intermediate_size": 64, "pad_token_id": 0}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 16}
    config = LlamaConfig(**sizes, **heads, initializer_range=0.1, attn_implementation=backend)
    deep = LlamaForCausalLM(config).eval()
    assert not deep.get_input_embeddings().weight[0].any()
    assert_isolated(check_isolation(deep, collate(rows())))
    ones = torch.ones_like(collate(rows())["input_ids"])
    assert check_isolation(deep, collate(rows()) | {"attention_mask": ones}).verdict == "leak"


LEAKS = {
    "all_ones_mask": ("an attention_mask of [rows, tokens] was passed", "leave attention_mask out"),
    "default_cache": ("use_cache is on", "use_cache=False"),
    "no_reset": ("position_ids do not restart", "pass position_ids that restart"),
    "open_mask": ("the 4-D attention_mask", "attention='transformers'"),
}


def leaky(batch: dict, leak: str, backend: str) -> dict:
    if leak == "all_ones_mask":
        return {**batch, "attention_mask": torch.ones_like(batch["input_ids"])}
    if leak == "default_cache":  # what a loop that passes only the three keys does
        return {name: value for name, value in batch.items() if name != "use_cache"}
    if leak == "no_reset":
        return {name: value for name, value in batch.items() if name != "position_ids"}
    one_document = torch.ones_like(batch["input_ids"])
    causal = bool_mask(one_document)
    mask = causal if backend == "sdpa" else float_mask(one_document, torch.float32)
    return {**batch, "attention_mask": mask}


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ATTENTION_MODELS)
def test_an_injected_leak_is_caught_and_its_cause_is_confirmed(name, backend, leak):
    batch = leaky(collate(rows()), leak, backend)
    report = check_isolation(model(name, backend), batch, segment_ids=SEGMENTS)
    cause, remedy = LEAKS[leak]
    assert (report.verdict, report.isolated) == ("leak", False)
    assert report.diagnosis.confirmed
    assert report.diagnosis.cause.startswith(cause)
    assert remedy in report.diagnosis.remedy
    # A causal model leaks forward within a row only, and every leak has a gradient.
    assert all(pair.source.row == pair.target.row for pair in report.pairs)
    assert all(pair.source.number < pair.target.number for pair in report.pairs)
    assert all(pair.difference > 0 and pair.gradient > 0 for pair in report.pairs)


def test_with_three_keys_every_later_document_sees_every_earlier_one():
    batch = collate(rows(1), attention=None)
    assert sorted(batch) == ["input_ids", "labels", "position_ids"]
    report = check_isolation(model("llama"), batch)
    found = [(pair.source.number, pair.target.number) for pair in report.pairs]
    assert found == [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]


def test_two_causes_at_once_are_both_named():
    batch = leaky(leaky(collate(rows()), "all_ones_mask", "sdpa"), "default_cache", "sdpa")
    report = check_isolation(model("llama"), batch)
    assert report.diagnosis.confirmed
    assert "attention_mask" in report.diagnosis.cause
    assert "use_cache" in report.diagnosis.cause


@pytest.mark.parametrize(
    ("backend", "dtype"),
    [("sdpa", torch.float32), ("eager", torch.float32), ("eager", torch.bfloat16)],
    ids=str,
)
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma", "gpt_neox", "gpt2", "mixtral"])
def test_the_collators_dense_mask_is_isolated(name, backend, dtype):
    batch = collate(rows(), attention=backend)
    report = check_isolation(model(name, backend, dtype), batch, segment_ids=SEGMENTS)
    assert_isolated(report)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_without_the_models_window_alters_documents(backend):
    batch = collate(rows(), attention=backend)
    report = check_isolation(model("mistral", backend), batch, segment_ids=SEGMENTS)
    assert (report.verdict, report.pairs) == ("altered", ())
    assert "sliding window of 4" in report.diagnosis.cause
    # Only documents longer than the window notice.
    longer = [document.document.stop - document.document.start for document in report.altered]
    assert longer == [7, 5, 6, 9, 8]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_with_the_models_window_is_isolated(backend):
    batch = collate(rows())
    segments = torch.from_numpy(SEGMENTS)
    mask = bool_mask(segments, 4) if backend == "sdpa" else float_mask(segments, torch.float32, 4)
    report = check_isolation(
        model("mistral", backend), {**batch, "attention_mask": mask}, segment_ids=SEGMENTS
    )
    assert_isolated(report)


def test_a_bool_mask_for_eager_attention_is_caught():
    batch = collate(rows(), attention="sdpa")
    report = check_isolation(model("llama", "eager"), batch, segment_ids=SEGMENTS)
    assert report.verdict == "leak"
    assert report.diagnosis.cause.startswith("a bool mask was passed to eager attention")


def test_absolute_positions_that_do_not_restart_alter_documents():
    batch = collate(rows(), attention="sdpa")
    batch = {**batch, "position_ids": torch.arange(19).expand(2, -1)}
    report = check_isolation(model("gpt2"), batch, segment_ids=SEGMENTS)
    assert (report.verdict, report.pairs) == ("altered", ())
    assert report.disagreements[0].form == "position_ids"
    assert "row 0 token 7 has position 7 but is 0 after" in report.disagreements[0].message


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("attention", ["transformers", "flex"])
def test_flex_attention_is_isolated_and_gradients_are_skipped(attention):
    batch = collate(rows(), attention=attention)
    report = check_isolation(model("llama", "flex_attention"), batch, segment_ids=SEGMENTS)
    assert_isolated(report, skipped=["gradients"])
    assert "does not support backward" in report.skipped["gradients"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_leak_through_flex_attention_is_caught():
    batch = collate(rows(), attention=None)
    open_mask = block_mask(np.ones((2, 19), dtype=np.int64))
    report = check_isolation(
        model("llama", "flex_attention"), {**batch, "attention_mask": open_mask}
    )
    assert report.verdict == "leak"
    assert [found.form for found in report.disagreements] == ["attention_mask"]


def test_a_dense_mask_is_refused_before_flex_attention_aborts_the_process():
    batch = collate(rows(), attention="sdpa")
    with pytest.raises(ModelError, match="flex attention cannot take a 4-D mask"):
        check_isolation(model("llama", "flex_attention"), batch)


@pytest.mark.parametrize("attention", ["transformers", "segments"])
@pytest.mark.parametrize("name", ["mamba", "mamba2"])
def test_a_state_space_model_whose_kernels_ignore_seq_idx_is_refused(name, attention):
    report = check_isolation(model(name, "eager"), collate(rows(), attention=attention))
    assert report.verdict == "leak"
    assert "Mixer carry a state across documents" in report.diagnosis.cause
    assert "ignore seq_idx" in report.diagnosis.cause
    assert "one document in a row" in report.diagnosis.remedy


@pytest.mark.parametrize("num_rows", [1, 3])
def test_mrope_positions_without_a_text_row_leak_and_four_rows_do_not(num_rows):
    batch = collate(rows())
    positions = batch["position_ids"]
    given = positions if num_rows == 1 else positions.expand(3, -1, -1)
    found = check_isolation(vision_model(), {**batch, "position_ids": given}, segment_ids=SEGMENTS)
    assert found.verdict == "leak"
    assert found.diagnosis.confirmed
    assert "mRoPE's three rows" in found.diagnosis.cause
    four = {**batch, "position_ids": positions.expand(4, -1, -1)}
    assert_isolated(check_isolation(vision_model(), four, segment_ids=SEGMENTS))
