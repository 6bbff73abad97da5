"""Train a small transformer in plain JAX, stop it, and resume exactly.

    python examples/jax_training.py --steps 12
    python examples/jax_training.py --steps 12 --folder runs/a --stop-after 5
    python examples/jax_training.py --steps 12 --folder runs/a --resume

The first run and the third print the same digest: all parameters are equal, bit for bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from source_texts import config, write_corpus

from quire.masks.segments import segment_mask
from quire.stream import GrainBatches, device_arrays

WIDTH, HEADS, LAYERS = 64, 4, 2
traces: list[tuple[int, ...]] = []


def attention(queries, keys, values, segment_ids, segment_masking=True):
    """Causal attention `[B, T, H, D]`, within documents if `segment_masking`."""
    if not segment_masking:
        return jax.nn.dot_product_attention(queries, keys, values, is_causal=True)
    return jax.nn.dot_product_attention(queries, keys, values, mask=segment_mask(segment_ids))


def initial_parameters(vocab_size, seq_len):
    random = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(0.02 * random.standard_normal(shape, np.float32))

    layers = [
        {
            "qkv": normal(WIDTH, 3 * WIDTH),
            "out": normal(WIDTH, WIDTH),
            "up": normal(WIDTH, 4 * WIDTH),
            "down": normal(4 * WIDTH, WIDTH),
        }
        for _ in range(LAYERS)
    ]
    return {"embed": normal(vocab_size, WIDTH), "place": normal(seq_len, WIDTH), "layers": layers}


def normalized(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def logits(parameters, batch, segment_masking=True):
    """Logits of the next token at every position `[B, T]`."""
    x = parameters["embed"][batch["input_ids"]] + parameters["place"][batch["position_ids"]]
    for layer in parameters["layers"]:
        heads = (normalized(x) @ layer["qkv"]).reshape(*x.shape[:2], 3, HEADS, -1)
        queries, keys, values = jnp.moveaxis(heads, 2, 0)
        mixed = attention(queries, keys, values, batch["segment_ids"], segment_masking)
        x = x + mixed.reshape(x.shape) @ layer["out"]
        x = x + jax.nn.gelu(normalized(x) @ layer["up"]) @ layer["down"]
    return normalized(x) @ parameters["embed"].T


def summed_loss(parameters, batch, segment_masking):
    """The loss of one microbatch, summed over its targets."""
    targets = batch["labels"]
    scores = jax.nn.log_softmax(logits(parameters, batch, segment_masking))
    chosen = jnp.take_along_axis(scores, jnp.maximum(targets, 0)[..., None], axis=-1)[..., 0]
    return -jnp.sum(jnp.where(targets >= 0, chosen, 0.0))


def train_step(parameters, momentum, batch, segment_masking):
    """One update from a batch `[A, B, T]`, accumulated over its microbatches."""
    traces.append(batch["input_ids"].shape)  # Python comes here only when JAX compiles

    def add(total, microbatch):
        loss, gradient = jax.value_and_grad(summed_loss)(parameters, microbatch, segment_masking)
        return jax.tree.map(jnp.add, total, (loss, gradient)), None

    nothing = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, parameters))
    (loss, gradient), _ = jax.lax.scan(add, nothing, batch)
    num_targets = jnp.maximum(jnp.sum(batch["labels"] >= 0), 1)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g / num_targets, momentum, gradient)
    parameters = jax.tree.map(lambda p, m: p - 0.03 * m, parameters, momentum)
    return parameters, momentum, loss / num_targets


def save(folder, step, trees, data_state):
    """Save parameters and the data state together: either both appear or neither."""
    temporary = folder / "unfinished"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    leaves = {f"leaf-{number:03d}": leaf for number, leaf in enumerate(jax.tree.leaves(trees))}
    np.savez(temporary / "trees.npz", **leaves)
    (temporary / "data.json").write_text(json.dumps(data_state))
    for path in (*temporary.iterdir(), temporary):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    temporary.rename(folder / f"step-{step:06d}")


def load(folder, trees):
    """The step, the trees and the data state of the last checkpoint."""
    latest = max(folder.glob("step-*"))
    saved = np.load(latest / "trees.npz")
    leaves = [jnp.asarray(saved[name]) for name in sorted(saved.files)]
    trees = jax.tree.unflatten(jax.tree.structure(trees), leaves)
    return int(latest.name[5:]), trees, json.loads((latest / "data.json").read_text())


def digest(tree):
    content = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree))
    return hashlib.sha256(content).hexdigest()[:16]


def train(folder, steps, stop_after=None, resume=False):
    options = config(write_corpus(folder / "corpus.jsonl"), seq_len=256, batch_size=2, grad_accum=2)
    options["data"] |= {"emit_position_ids": True, "grain_prefetch": 2}
    dataset = GrainBatches(options)
    model, batches = dataset.config.model, iter(dataset)
    parameters = initial_parameters(model.vocab_size, seq_len=256)
    step, trees = 0, (parameters, jax.tree.map(jnp.zeros_like, parameters))
    if resume:
        step, trees, state = load(folder, trees)
        batches.set_state(state)
        print(f"resumed after step {step}")
    compiled = jax.jit(train_step, static_argnames="segment_masking")
    last = min(steps, stop_after or steps)
    while step < last:
        batch = device_arrays(next(batches))
        *trees, loss = compiled(*trees, batch, segment_masking=model.segment_masking)
        step += 1
        print(f"step {step}: loss {loss:.4f}")
        if step % 4 == 0 or step == last:
            save(folder, step, trees, batches.get_state())
    batches.close()
    print(f"the step was compiled {len(traces)} time(s), for batches of {traces[0]}")
    print(f"parameters after step {step}: {digest(trees[0])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--stop-after", type=int, help="stop after this step")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--folder", type=Path, help="for checkpoints and the corpus")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        if not given.resume:
            for old in folder.glob("step-*"):
                shutil.rmtree(old)
        train(folder, given.steps, given.stop_after, given.resume)


if __name__ == "__main__":
    main()
