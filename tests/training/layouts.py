"""The same documents unpacked, padded, packed and padding-free, and a tiny model for them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from quire.boundaries import starts_from_lengths
from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator

TOKENIZER = SimpleNamespace(pad_token_id=0, bos_token_id=1, eos_token_id=2)
ROWS = [[7, 1, 12, 4], [2, 9, 8], [20], [3, 3, 3, 8, 1], [5, 11], [6, 6, 6], [19, 2], [4, 4]]
"""Lengths of documents, by packed row."""
LAYOUTS = ("unpacked", "padded", "packed", "padding_free")


def model() -> LlamaForCausalLM:
    """Two layers in float64, so that sums in another order differ by less than 1e-10."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, **sizes, **heads)).double()


def documents() -> list[list[dict[str, np.ndarray]]]:
    """By packed row; some tokens are not learned, and one document has no target."""
    random = np.random.default_rng(0)
    rows = []
    for lengths in ROWS:
        row = []
        for length in lengths:
            mask = (random.random(length) < 0.7).astype(int)
            row.append({"input_ids": random.integers(3, 64, length), "loss_mask": mask})
        rows.append(row)
    rows[1][0]["loss_mask"][:] = 0
    return rows


def microbatches(layout: str, num_parts: int) -> list[dict]:
    """All documents in this many batches."""
    rows = documents()
    if layout in ("unpacked", "padded"):
        every = [document for row in rows for document in row]
        size = 1 if layout == "unpacked" else -(-len(every) // num_parts)
        groups = [every[first : first + size] for first in range(0, len(every), size)]
        batches = [padded(group) for group in groups]
    else:
        packed = [pack(row) for row in rows]
        size = len(packed) // num_parts
        groups = [packed[first : first + size] for first in range(0, len(packed), size)]
        stacked = DataCollatorForCausalLM(TOKENIZER)
        collate = stacked if layout == "packed" else PaddingFreeCollator(TOKENIZER)
        batches = [collate(group) for group in groups]
    return batches


def padded(group: list[dict]) -> dict:
    """Documents in rows of their own, as collators of transformers pad them."""
    width = max(len(document["input_ids"]) for document in group)
    ids = np.zeros((len(group), width), np.int64)
    labels, mask = np.full_like(ids, -100), np.zeros_like(ids)
    for row, document in enumerate(group):
        length = len(document["input_ids"])
        ids[row, :length], mask[row, :length] = document["input_ids"], 1
        learned = document["loss_mask"] == 1
        labels[row, :length] = np.where(learned, document["input_ids"], -100)
    arrays = {"input_ids": ids, "labels": labels, "attention_mask": mask}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def pack(row: list[dict]) -> dict:
    columns = {name: np.concatenate([document[name] for document in row]) for name in row[0]}
    lengths = [len(document["input_ids"]) for document in row]
    return columns | {"document_starts": starts_from_lengths(lengths)}


def alone(owner, averaging: str) -> list[torch.Tensor]:
    """Loss and gradients in the plainest way: documents one by one, averages taken by hand."""
    sizes, means = [], []
    for row in documents():
        for document in row:
            learned = torch.from_numpy(document["loss_mask"])[1:] == 1
            if learned.any():
                ids = torch.from_numpy(document["input_ids"])
                logits = owner(input_ids=ids[None]).logits[0, :-1]
                means.append(torch.nn.functional.cross_entropy(logits[learned], ids[1:][learned]))
                sizes.append(int(learned.sum()))
    share = {"token": 1.0, "document": 0.0, "sqrt": 0.5}[averaging]
    shares = torch.tensor(sizes, dtype=torch.float64) ** share
    loss = (torch.stack(means) * shares).sum() / shares.sum()
    owner.zero_grad()
    loss.backward()
    return [loss.detach(), *gradients(owner)]


def gradients(owner) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in owner.parameters()]


def inputs(batch: dict) -> dict:
    """What the model is called with; without labels it computes no loss of its own."""
    return {name: value for name, value in batch.items() if name != "labels"}
