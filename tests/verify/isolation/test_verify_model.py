"""The command, on models saved to disk."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import pytest
import torch
import typer
from tests.verify.isolation.models import model
from typer.testing import CliRunner

from quire.cli.verify_model import verify_model
from quire.errors import InvalidOption, ModelError
from quire.verify.isolation.causal_lm import load_causal_lm

SEED_OF_SINGLE_TOKENS = 142
"""With it, both documents of a row of two have one token."""

app = typer.Typer()
app.command()(verify_model)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return saved("llama", "sdpa", tmp_path_factory)


@pytest.fixture(scope="module")
def mamba(tmp_path_factory):
    return saved("mamba2", "eager", tmp_path_factory)


def saved(name, backend, tmp_path_factory):
    folder = tmp_path_factory.mktemp(name)
    model(name, backend).save_pretrained(folder)
    return folder


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--dtype", "bfloat16", "--attn-implementation", "eager", "--rows", "1"],
        ["--attention", "eager", "--attn-implementation", "eager"],
        ["--attention", "sdpa", "--use-cache"],
        ["--attention", "none", "--no-use-cache", "--documents", "2", "--seed", "7"],
    ],
    ids=str,
)
def test_a_call_that_keeps_documents_apart_exits_with_0(llama, flags):
    result = run(llama, *flags)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("isolated: no document changes another, bit for bit")


@pytest.mark.parametrize(
    ("flags", "cause"),
    [
        (["--attention", "none"], "use_cache is on"),
        (["--use-cache"], "use_cache is on"),
        (["--with-attention-mask"], "an attention_mask of [rows, tokens] was passed"),
        (["--attention", "varlen"], "use_cache is on"),
    ],
    ids=str,
)
def test_a_call_that_leaks_exits_with_1_and_names_cause_and_remedy(llama, flags, cause):
    result = run(llama, *flags)
    assert result.exit_code == 1
    words = " ".join(result.stdout.split())
    assert words.startswith("leak: documents see each other")
    assert f"cause: {cause}" in words
    assert "(tried: it helps)" in words


@pytest.mark.parametrize("flags", [[], ["--with-attention-mask"]], ids=str)
def test_a_model_with_a_zero_head_exits_with_1_and_a_remedy(flags, tmp_path):
    blank = copy.deepcopy(model("llama"))
    torch.nn.init.zeros_(blank.lm_head.weight)
    blank.save_pretrained(tmp_path)
    result = run(tmp_path, *flags)
    words = " ".join(result.stdout.split())
    assert (result.exit_code, words.split(":")[0]) == (1, "unproven")
    assert "cause: the output does not depend on earlier tokens at all" in words
    assert "remedy: give a model with trained or random weights" in words


def test_documents_of_one_token_exit_with_1_and_ask_for_another_seed(llama):
    result = run(llama, "--rows", "1", "--documents", "2", "--seed", SEED_OF_SINGLE_TOKENS)
    words = " ".join(result.stdout.split())
    assert (result.exit_code, words.split(":")[0]) == (1, "unproven")
    assert "--seed" in words


def test_the_json_form_is_the_whole_report_and_nothing_else(llama):
    result = run(llama, "--attention", "none", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["verdict"]) == (1, "leak")
    assert len(report["pairs"]) == 12
    assert report["diagnosis"]["confirmed"] is True


def test_a_state_space_model_exits_with_1(mamba):
    result = run(mamba)
    assert result.exit_code == 1
    assert "Mamba2Mixer carry a state across documents" in " ".join(result.stdout.split())


@pytest.mark.parametrize("backend", ["sdpa", "flash_attention_2", "no_such_backend"])
def test_a_backend_that_the_model_lacks_is_a_model_error(mamba, backend):
    with pytest.raises(
        ModelError, match=f"attn_implementation='{backend}'.*name an attn_implementation"
    ):
        load_causal_lm(mamba, attn_implementation=backend)


def test_a_negative_seed_is_an_error_and_not_a_leak(llama):
    assert run(llama, "--seed", "-1").exit_code == 2


def test_a_folder_without_a_model_is_a_model_error(tmp_path):
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        load_causal_lm(tmp_path)


def test_a_folder_without_weights_is_a_model_error(llama, tmp_path):
    (tmp_path / "config.json").write_text((llama / "config.json").read_text())
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_causal_lm(tmp_path)


def test_an_unknown_dtype_suggests_the_nearest(llama):
    with pytest.raises(InvalidOption, match="did you mean 'bfloat16'"):
        load_causal_lm(llama, dtype="bfloat")


def test_code_that_comes_with_a_model_is_never_run(llama, tmp_path):
    config = json.loads((llama / "config.json").read_text())
    config["model_type"] = "not_of_transformers"
    config["auto_map"] = dict.fromkeys(("AutoConfig", "AutoModelForCausalLM"), "evil.Evil")
    (tmp_path / "config.json").write_text(json.dumps(config))
    ran = tmp_path / "ran"
    (tmp_path / "evil.py").write_text(f"open({str(ran)!r}, 'w').close()\nclass Evil: pass\n")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_causal_lm(tmp_path)
    assert not ran.exists()


def test_the_command_is_imported_without_torch():
    code = "import sys, quire.cli.verify_model; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
