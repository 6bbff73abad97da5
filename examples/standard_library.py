"""What the examples share: rows to train on, and a model small enough to train.

The rows are those of a folder that `quire pack` wrote, with any tokenizer. Without a folder, the
corpus is the Python standard library's own source: every top-level function and class is a
document, every byte of it a token.
"""

from __future__ import annotations

import argparse
import ast
import sysconfig
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import quire
from quire.text import as_tokenizer
from quire.verify import check_isolation

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


def shared_options(description: str) -> argparse.ArgumentParser:
    """The options that the examples share."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("packed", nargs="?", help="a folder that quire pack wrote")
    parser.add_argument("--tokenizer", help="the tokenizer of these rows, unless it is 'byte'")
    parser.add_argument("--model", help="a folder of save_pretrained, not a tiny random Llama")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    return parser


def parse(description: str) -> argparse.Namespace:
    """The command line of an example that has no further options."""
    parser = shared_options(description)
    parser.add_argument("--max-steps", type=int, default=-1, help="end after so many steps")
    return checked(parser)


def checked(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line; rows of an unknown tokenizer are an error that says what to add."""
    given = parser.parse_args()
    if given.packed and not given.tokenizer:
        kind = (quire.PackedDataset(given.packed).manifest["tokenizer"] or {}).get("kind")
        if kind != "byte":
            parser.error(f"{given.packed} was packed with another tokenizer: add --tokenizer PATH")
    return given


def open_rows(given: argparse.Namespace) -> tuple[Sequence[dict], int]:
    """The rows to train on, and their length."""
    if given.packed:
        rows = quire.PackedDataset(given.packed)
        return rows, rows.max_length
    return pack(documents(48, 256), 256), 256


def open_tokenizer(given: argparse.Namespace):
    """The tokenizer of the rows, for its special tokens and the size of its vocabulary."""
    return as_tokenizer(given.tokenizer) if given.tokenizer else TOKENIZER


def open_model(given: argparse.Namespace, max_length: int):
    """The model to train; a tiny one knows every token of the tokenizer."""
    if given.model:
        return AutoModelForCausalLM.from_pretrained(given.model)
    return tiny_llama(max_length, open_tokenizer(given).vocab_size)


def proof(model: torch.nn.Module, batches: Iterable[dict]) -> str:
    """Whether documents are kept apart, tried on the first batch that has several in a row."""
    for batch in islice(batches, 100):
        number = batch["position_ids"].eq(0).sum(1)
        if int(number.max()) > 1:
            most = slice(int(number.argmax()), int(number.argmax()) + 1)
            row = {name: one[most] if torch.is_tensor(one) else one for name, one in batch.items()}
            report = check_isolation(model, row)
            return f"{report.num_documents} documents in a row of a batch: {report.verdict}"
    return "every row of the first batches holds one document: nothing to keep apart"


def curve(losses: Sequence[float]) -> str:
    """A line that falls as the losses do; a character of a long one is a mean of several."""
    first, last, each = losses[0], losses[-1], -(-len(losses) // 60)
    losses = [fmean(losses[n : n + each]) for n in range(0, len(losses), each)]
    low, high = min(losses), max(losses)
    heights = [round(7 * (loss - low) / (high - low or 1)) for loss in losses]
    line = "".join("▁▂▃▄▅▆▇█"[height] for height in heights)
    return f"{first:.2f} {line} {last:.2f}"


def tiny_llama(max_length: int, vocab_size: int = TOKENIZER.vocab_size) -> LlamaForCausalLM:
    """A small Llama of random weights, the same at every call."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=max_length,
            bos_token_id=1,
            eos_token_id=2,
        )
    )
