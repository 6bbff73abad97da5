"""Train the same tiny Llama on the same documents, padded and packed, and compare.

Every run sees every document once, in steps of about as many real tokens; what differs is how much
padding the model computes along the way. The loss is that of documents that no run has seen.

    python examples/padded_or_packed.py [number of documents]
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from standard_library import TOKENIZER, documents, pack, tiny_llama
from torch.utils.data import DataLoader
from transformers import LlamaForCausalLM

from quire.collate import DataCollatorForCausalLM

MAX_LENGTH = 1024
DOCUMENTS_PER_STEP = 16


def batches(rows: list[dict], rows_per_step: int, padding: str) -> DataLoader:
    """The rows in a shuffled order, some at a time."""
    collator = DataCollatorForCausalLM(TOKENIZER, padding=padding, max_length=MAX_LENGTH)
    order = torch.Generator().manual_seed(0)
    return DataLoader(
        rows, batch_size=rows_per_step, shuffle=True, generator=order, collate_fn=collator
    )


def train(model: LlamaForCausalLM, steps: DataLoader) -> tuple[int, float]:
    """The places that the model computed, padding among them, and the seconds that it took.

    Seconds of one core, so that other users of the machine do not count.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    places, started = 0, time.process_time()
    for batch in steps:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        places += batch["input_ids"].numel()
    return places, time.process_time() - started


def held_out_loss(model: LlamaForCausalLM, rows: list[dict]) -> float:
    """The mean loss of documents that stand alone."""
    with torch.no_grad():
        losses = [model(**batch).loss.item() for batch in batches(rows, 1, "longest")]
    return float(np.mean(losses))


def main(count: int) -> None:
    """Print one line for each way of making batches."""
    torch.set_num_threads(1)
    texts = documents(count, MAX_LENGTH)
    order = np.random.default_rng(0).permutation(len(texts))
    unseen, seen = order[: count // 8], order[count // 8 :]
    single = [{"input_ids": tokens, "document_starts": [0]} for tokens in texts]
    padded = [single[index] for index in seen]
    packed = pack([texts[index] for index in seen], MAX_LENGTH)
    tokens = sum(len(texts[index]) for index in seen)
    packed_rows_per_step = max(1, round(DOCUMENTS_PER_STEP * len(packed) / len(padded)))
    print(f"{len(seen)} documents of {tokens} tokens, rows of {MAX_LENGTH}, one pass over all")
    print(f"{'':<22}{'steps':>6}{'filled':>8}{'tokens/s':>10}{'speed':>7}{'loss':>7}")
    train(tiny_llama(MAX_LENGTH), batches(padded[:1], 1, "longest"))  # torch warms up
    slowest = None
    for name, rows, rows_per_step, padding in [
        ("padded to max_length", padded, DOCUMENTS_PER_STEP, "max_length"),
        ("padded to the longest", padded, DOCUMENTS_PER_STEP, "longest"),
        ("packed", packed, packed_rows_per_step, "longest"),
    ]:
        model, steps = tiny_llama(MAX_LENGTH), batches(rows, rows_per_step, padding)
        places, seconds = train(model, steps)
        slowest = slowest or seconds
        loss = held_out_loss(model, [single[index] for index in unseen])
        print(
            f"{name:<22}{len(steps):>6}{tokens / places:>8.0%}{tokens / seconds:>10,.0f}"
            f"{slowest / seconds:>6.1f}x{loss:>7.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
