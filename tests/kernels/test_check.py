"""The check of kernels, on a CPU and with emulated ones that leak, are missing or are wrong."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from typer.testing import CliRunner

from quire.cli.app import app
from quire.kernels import KERNELS, CheckOptions, Kernel, check_kernels
from quire.kernels.check import _batches_of_rows, _collate, _compilations, _with_attention
from tests.verify.isolation.models import model

OPTIONS = CheckOptions(num_documents=0, max_length=24)


def varlen(module, query, key, value, attention_mask, cu_seq_lens_q=None, scaling=None, **others):
    """What a varlen kernel computes: one attention for every document of the flat row."""
    groups = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
    bounds = [0, query.shape[2]] if cu_seq_lens_q is None else cu_seq_lens_q.tolist()
    parts = [
        torch.nn.functional.scaled_dot_product_attention(
            query[:, :, start:stop],
            key[:, :, start:stop],
            value[:, :, start:stop],
            is_causal=True,
            scale=scaling,
        )
        for start, stop in pairwise(bounds)
        if start < stop
    ]
    return torch.cat(parts, 2).transpose(1, 2).contiguous(), None


def leaking(module, query, key, value, attention_mask, **others):
    """A kernel that ignores the mask."""
    return sdpa_attention_forward(module, query, key, value, None, **(others | {"is_causal": True}))


def wrong(module, query, key, value, attention_mask, **others):
    """A kernel that keeps documents apart and computes something else."""
    found, weights = sdpa_attention_forward(module, query, key, value, attention_mask, **others)
    return found * 1.5, weights


def unavailable(module, query, key, value, attention_mask, **others):
    raise RuntimeError("No available kernel. Aborting execution.")


def broken(module, query, key, value, attention_mask, **others):
    raise RuntimeError("shapes do not match")


EMULATED = {each.__name__: each for each in (varlen, leaking, wrong, unavailable, broken)}


@pytest.fixture(scope="module", autouse=True)
def _registered():
    for name, function in EMULATED.items():
        AttentionInterface.register(name, function)
        AttentionMaskInterface.register(name, sdpa_mask)


def result_of(name: str, **options):
    kernel = Kernel(name=name, attn_implementation=name, **options)
    (result,) = check_kernels(model("llama"), options=OPTIONS, kernels=[kernel]).results
    return result


def test_an_emulated_varlen_kernel_passes():
    result = result_of("varlen", is_flat=True)
    assert (result.outcome, result.reason) == ("passed", "")
    assert result.figures["isolation"] == "isolated"
    assert result.figures["gradient difference"] < 1e-5


def test_a_kernel_that_ignores_boundaries_fails():
    result = result_of("leaking")
    assert result.outcome == "failed"
    assert "documents are not isolated (documents see each other)" in result.reason
    assert "gradient difference is" in result.reason


def test_a_kernel_with_another_loss_fails():
    result = result_of("wrong")
    assert result.outcome == "failed" and result.figures["isolation"] == "isolated"
    assert "gradient difference is" in result.reason


def test_a_kernel_that_is_missing_is_skipped_and_a_broken_one_fails():
    missing = result_of("unavailable")
    assert missing.outcome == "skipped" and "No available kernel" in missing.reason
    failed = result_of("broken")
    assert failed.outcome == "failed" and "shapes do not match" in failed.reason
    other = result_of("varlen", needs=lambda device: f"not on {device.type}")
    assert (other.outcome, other.reason) == ("skipped", "not on cpu")


def test_a_report_without_a_kernel_that_ran_has_not_passed():
    kernel = Kernel(name="a", attn_implementation="sdpa", needs=lambda _: "no")
    report = check_kernels(model("llama"), options=OPTIONS, kernels=[kernel])
    assert not report.passed
    assert json.loads(report.to_json())["results"][0]["outcome"] == "skipped"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_model_that_is_compiled_again_is_noticed():
    owner = _with_attention(model("llama"), "sdpa")
    rows = _batches_of_rows(owner, OPTIONS)
    flat = Kernel(name="flat", attn_implementation="sdpa", is_flat=True)
    batches = [_collate(flat, each) for each in (rows[0], rows[1], rows[1][:1])]
    for given, expected in ((batches[:2], 1), (batches[1:], 2)):
        torch._dynamo.reset()
        compiled = torch.compile(owner, dynamic=False, backend="aot_eager")
        assert _compilations(compiled, owner, given) == expected
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_command_tries_what_this_machine_has_and_names_the_rest(tmp_path):
    model("llama").save_pretrained(tmp_path / "llama")
    done = CliRunner().invoke(app, ["verify-model", str(tmp_path / "llama"), "--kernels", "--json"])
    report = json.loads(done.stdout)
    assert done.exit_code == 0 and report["passed"]
    outcomes = {one["name"]: one["outcome"] for one in report["results"]}
    assert set(outcomes) == {kernel.name for kernel in KERNELS}
    for name in ("eager", "sdpa math", "flex", "sdpa compiled", "sdpa FSDP"):
        assert outcomes[name] == "passed", name
    figures = {one["name"]: one["figures"] for one in report["results"]}
    if not torch.cuda.is_available():
        assert outcomes["flash-attention 2 varlen"] == "skipped"
        assert figures["sdpa compiled"]["compiled with"] == "aot_eager"


def test_a_device_that_is_not_here_is_an_error(tmp_path):
    model("llama").save_pretrained(tmp_path / "llama")
    arguments = ["verify-model", str(tmp_path / "llama"), "--device", "nonsense"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code != 0
    assert "cannot be put on nonsense" in str(done.exception)
