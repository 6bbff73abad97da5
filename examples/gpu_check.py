"""Try every attention kernel of this machine on packed batches, and write a report.

    python examples/gpu_check.py --device cuda --dtype bf16
    python examples/gpu_check.py --device cuda --dtype bf16 --model ./my-model

It tells for each kernel (SDPA's backends, flex, flash-attention, compiled, FSDP) whether it keeps
documents apart, whether loss and gradients are those of separate documents, whether a compiled
model is compiled once, and how many tokens per second it takes, padded and packed. Kernels that
this machine lacks are skipped by name. Attach the JSON file to an issue.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from quire.kernels import CheckOptions, check_kernels
from quire.verify.isolation.causal_lm import SHORT, load_causal_lm


def random_llama(size, dtype):
    """A Llama of random weights; four heads, so that kernels see heads of size / 4."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1024,
        hidden_size=size,
        intermediate_size=2 * size,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config).to(getattr(torch, SHORT.get(dtype, dtype)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--model", type=Path, help="a folder that save_pretrained wrote")
    parser.add_argument("--size", type=int, default=256, help="hidden size of the random model")
    parser.add_argument("--max-length", type=int, default=256, help="tokens of a row")
    parser.add_argument("--documents", type=int, default=64, help="for the speed; 0 leaves it out")
    parser.add_argument("--out", type=Path, default=Path("gpu_check.json"))
    given = parser.parse_args()
    if given.model is None:
        model = random_llama(given.size, given.dtype)
    else:
        model = load_causal_lm(given.model, given.dtype)
    options = CheckOptions(max_length=given.max_length, num_documents=given.documents)
    report = check_kernels(model, device=given.device, options=options)
    for result in report.results:
        print(f"{result.outcome:8} {result.name}: {result.reason or result.figures}")
    given.out.write_text(report.to_json())
    print(f"wrote {given.out}")
    sys.exit(0 if report.passed else 1)


if __name__ == "__main__":
    main()
