"""`check_isolation` on one row of 1,014 tokens with a vocabulary of 151,936, like Qwen3's: random
Qwen3 models of 2 layers and width 256. Memory is what the process needs besides the model, first
call included. One float32 copy of the logits would take 616 MB. CPU time is that of all threads.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.harness import Table, best_of, peak_bytes

TITLE = "Isolation check"
TOKENS, VOCABULARY = 1014, 151_936
DOCUMENTS = (4, 16)


def run() -> list[Table]:
    import torch

    table = Table(
        f"1 × {TOKENS:,} tokens, {VOCABULARY:,} ids",
        ["documents", "dtype", "mode", "verdict", "time", "CPU time", "memory"],
    )
    for num_documents in DOCUMENTS:
        for training in (False, True):
            table.add(num_documents, *_measure(num_documents, torch.float32, training))
    table.add(DOCUMENTS[0], *_measure(DOCUMENTS[0], torch.bfloat16, training=False))
    leak = _measure(DOCUMENTS[0], torch.float32, training=False, leaking=True)
    table.add(f"{DOCUMENTS[0]}, mask of ones", *leak)
    return [table]


def _measure(num_documents: int, dtype, training: bool, leaking: bool = False) -> list[object]:
    import torch

    from quire.verify import check_isolation

    model, batch = _model(dtype).train(training), _batch(num_documents)
    if leaking:
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    reports = []
    peak = peak_bytes(lambda: reports.append(check_isolation(model, batch)))
    before = time.process_time()
    seconds = best_of(1, lambda: check_isolation(model, batch))
    used = time.process_time() - before
    name = str(dtype).removeprefix("torch.")
    mode = "training" if training else "evaluation"
    return [
        name,
        mode,
        reports[0].verdict,
        f"{seconds:.1f} s",
        f"{used:.1f} s",
        f"{peak / 1e6:.0f} MB",
    ]


def _model(dtype):
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        tie_word_embeddings=True,
    )
    return Qwen3ForCausalLM(config).to(dtype)


def _batch(num_documents: int) -> dict:
    from quire import ByteTokenizer
    from quire.collate import DataCollatorForCausalLM

    rng = np.random.default_rng(0)
    inside = np.sort(rng.choice(np.arange(1, TOKENS), num_documents - 1, replace=False))
    row = {
        "input_ids": rng.integers(0, VOCABULARY, TOKENS),
        "document_starts": np.append(0, inside),
    }
    return dict(DataCollatorForCausalLM(ByteTokenizer())([row]))
