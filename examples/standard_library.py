"""What the examples share: a corpus that every machine has, and a model small enough to train.

The corpus is the Python standard library's own source: every top-level function and class is a
document, every byte of it a token.
"""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import quire


class Bytes:
    """A tokenizer: UTF-8 bytes + 3, after padding (0), begin (1) and end (2)."""

    pad_token_id, bos_token_id, eos_token_id = 0, 1, 2
    vocab_size = 259

    def encode(self, text: str) -> np.ndarray:
        """The tokens of one document."""
        content = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64) + 3
        return np.concatenate([[self.bos_token_id], content, [self.eos_token_id]])


def documents(count: int, max_length: int) -> list[np.ndarray]:
    """The first documents of the corpus, in order of files, that fit into a row."""
    found: list[np.ndarray] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                tokens = Bytes().encode(ast.get_source_segment(source, node) or "")
                if len(tokens) <= max_length:
                    found.append(tokens)
        if len(found) >= count:
            break
    return found[:count]


def pack(texts: list[np.ndarray], max_length: int) -> list[dict]:
    """Rows of whole documents, with where each document starts."""
    plan = quire.make_plan([len(tokens) for tokens in texts], max_length)
    rows = []
    for fragments in plan:
        lengths = np.array([fragment.stop - fragment.start for fragment in fragments])
        parts = [texts[f.document][f.start : f.stop] for f in fragments]
        rows.append(
            {
                "input_ids": np.concatenate(parts).tolist(),
                "document_starts": (np.cumsum(lengths) - lengths).tolist(),
            }
        )
    return rows


def tiny_llama(max_length: int) -> LlamaForCausalLM:
    """A Llama of 0.1 million random weights, the same at every call."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=Bytes.vocab_size,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=max_length,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
