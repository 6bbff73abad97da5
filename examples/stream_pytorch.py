"""Train a tiny Llama from a stream with two workers, stop it, and resume exactly.

    python examples/stream_pytorch.py --steps 8
    python examples/stream_pytorch.py --steps 8 --folder runs/b --stop-after 3
    python examples/stream_pytorch.py --steps 8 --folder runs/b --resume

The first run and the third print the same digest: all parameters are equal, bit for bit.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import warnings
from itertools import islice
from pathlib import Path

import torch
from source_texts import config, write_corpus
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import LlamaConfig, LlamaForCausalLM

from quire.stream import TorchBatches
from quire.verify import check_isolation

SEQ_LEN, BATCH_SIZE, GRAD_ACCUM = 256, 2, 2


def tiny_llama(model):
    """A Llama of 0.1 million random weights, the same at every call."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=model.vocab_size,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=SEQ_LEN,
            pad_token_id=model.pad_token_id,
            bos_token_id=model.bos_token_id,
            eos_token_id=model.eos_token_id,
        )
    )


def open_loader(dataset, num_workers):
    with warnings.catch_warnings():  # torchdata 0.11 calls what torch 2.13 deprecates
        warnings.simplefilter("ignore", UserWarning)
        return StatefulDataLoader(dataset, batch_size=None, num_workers=num_workers)


def train_step(model, optimizer, microbatches):
    """The loss of one update: the mean over all targets of its microbatches."""
    num_targets = sum(int((batch["shift_labels"] != -100).sum()) for batch in microbatches)
    total = 0.0
    for batch in microbatches:
        loss = model(**batch, num_items_in_batch=num_targets).loss
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    return total


def save(path, saved):
    """Save parameters and the data state in one file, which appears complete or not at all."""
    temporary = path.with_suffix(".unfinished")
    torch.save(saved, temporary)
    temporary.rename(path)


def digest(model):
    content = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    return hashlib.sha256(content).hexdigest()[:16]


def train(folder, given):
    train_options = {"seq_len": SEQ_LEN, "batch_size": BATCH_SIZE, "grad_accum": GRAD_ACCUM}
    dataset = TorchBatches(config(write_corpus(folder / "corpus.jsonl"), **train_options))
    loader = open_loader(dataset, given.workers)
    model = tiny_llama(dataset.config.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step, checkpoint = 0, folder / "checkpoint.pt"
    if given.resume:
        saved = torch.load(checkpoint)
        step = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["data"])
        print(f"resumed after step {step}")
    batches, last = iter(loader), min(given.steps, given.stop_after or given.steps)
    while step < last:
        microbatches = list(islice(batches, GRAD_ACCUM))
        if step == 0:  # the proof, once, on the very call that is trained on
            report = check_isolation(model, microbatches[0])
            print(f"{report.num_documents} documents in the first microbatch: {report.verdict}")
        loss = train_step(model, optimizer, microbatches)
        step += 1
        print(f"step {step}: loss {loss:.4f}")
        if step % 4 == 0 or step == last:
            states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save(checkpoint, {"step": step, **states, "data": loader.state_dict()})
    print(f"parameters after step {step}: {digest(model)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--stop-after", type=int, help="stop after this step")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--folder", type=Path, help="for checkpoints and the corpus")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        train(given.folder or Path(temporary), given)


if __name__ == "__main__":
    main()
