"""What the examples share: a corpus that every machine has, and a model small enough to train.

The corpus is the Python standard library's own source: every top-level function and class is a
document, every byte of it a token.
"""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import quire

TOKENIZER = quire.ByteTokenizer()
"""UTF-8 bytes + 3, after padding (0), begin (1) and end (2)."""


def encode(text: str) -> list[int]:
    """The tokens of one document."""
    content = (byte + 3 for byte in text.encode())
    return [TOKENIZER.bos_token_id, *content, TOKENIZER.eos_token_id]


def documents(count: int, max_length: int) -> list[list[int]]:
    """The first documents of the corpus, in order of files, that fit into a row."""
    found: list[list[int]] = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                tokens = encode(ast.get_source_segment(source, node) or "")
                if len(tokens) <= max_length:
                    found.append(tokens)
        if len(found) >= count:
            break
    return found[:count]


def pack(texts: list[list[int]], max_length: int) -> list[dict]:
    """Rows of whole documents, with where each document starts."""
    documents = [{"input_ids": tokens} for tokens in texts]
    return quire.pack_dataset(documents, max_length=max_length).to_pylist()


def tiny_llama(max_length: int) -> LlamaForCausalLM:
    """A Llama of 0.1 million random weights, the same at every call."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=TOKENIZER.vocab_size,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=max_length,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
