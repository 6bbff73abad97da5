"""`quire bench-model` measures the same tokens, padded and packed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests import commands

import quire

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = LlamaConfig(vocab_size=259, num_attention_heads=2, pad_token_id=None, **sizes)
    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def run(*arguments):
    return commands.run("bench-model", *arguments, "--repeats", 1, "--device", "cpu")


@pytest.mark.slow
def test_both_ways_compute_the_same_tokens_and_packing_computes_fewer_positions(model):
    done = run(model, "--documents", 40, "--max-length", 256, "--json")
    assert done.returncode == 0, done.stderr
    padded, packed = json.loads(done.stdout)["ways"]
    assert padded["tokens"] == packed["tokens"] <= packed["positions"] < padded["positions"]
    assert padded["rows"] == 40 > packed["rows"]
    assert min(padded["seconds"], packed["seconds"]) > 0
    assert packed["peak_memory"] is None


@pytest.mark.slow
def test_documents_of_a_packed_dataset_are_used(model, tmp_path):
    lines = [json.dumps({"text": "word " * n}) + "\n" for n in range(1, 30)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "packed", "byte", max_length=200)
    done = run(model, "--data", tmp_path / "packed")
    tokens = quire.PackedDataset(tmp_path / "packed").ledger.tokens
    total = tokens.emitted + tokens.special
    assert f"29 documents, {total:,} tokens, rows of 200" in done.stdout, done.stderr
    assert "padded" in done.stdout
    assert "packed" in done.stdout


def test_tokens_outside_the_models_vocabulary_are_an_error_that_names_both(model, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"input_ids": [5, 600, 7]}) + "\n")
    quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "packed", max_length=8)
    done = run(model, "--data", tmp_path / "packed")
    assert done.returncode == 2
    assert "have the token 600, but the model's vocabulary ends at 258" in done.stderr


def test_the_fragments_of_a_row_are_its_documents(tmp_path):
    from quire.speed import packed_documents

    lines = [json.dumps({"input_ids": [n] * n}) + "\n" for n in (3, 4, 5)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "packed", max_length=8)
    found = packed_documents(quire.PackedDataset(tmp_path / "packed"), 9)
    assert sorted(np.unique(one).tolist() for one in found) == [[3], [4], [5]]
    assert sorted(map(len, found)) == [3, 4, 5]
