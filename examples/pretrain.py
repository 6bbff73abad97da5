"""Pre-train on what quire pack wrote, on any number of ranks; a killed run continues by itself.

    torchrun --nproc-per-node 2 examples/pretrain.py packed --folder run
    python examples/pretrain.py packed --folder run

The second command continues the first with one rank, if the first was killed: every step reads the
rows that it would have read without the kill.
"""

from __future__ import annotations

import os
import signal
from itertools import islice
from pathlib import Path

import torch
import torch.distributed as dist
from standard_library import checked, curve, open_model, open_tokenizer, proof, shared_options
from torch.nn.parallel import DistributedDataParallel

import quire
from quire.collate import DataCollatorForCausalLM
from quire.printable import counted
from quire.training import PackedLoss, TrainingData

parser = shared_options(__doc__)
parser.add_argument("--folder", type=Path, default=Path("run"), help="for the checkpoint")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--global-batch", type=int, default=8, help="rows of a step, over all ranks")
parser.add_argument(
    "--save-every", type=int, default=10, help="steps from checkpoint to checkpoint"
)
parser.add_argument("--kill-after", type=int, help="end with SIGKILL after this step, for a trial")
given = checked(parser)
if not given.packed:
    parser.error("name a folder that quire pack wrote")

torch.set_num_threads(1)  # the model is too small to be shared out
if "RANK" in os.environ:  # started by torchrun
    dist.init_process_group("gloo")
else:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
rank, world_size = dist.get_rank(), dist.get_world_size()


def say(text: str) -> None:
    if rank == 0:
        print(text, flush=True)


rows = quire.PackedDataset(given.packed)
loader = rows.loader(given.global_batch, rank=rank, world_size=world_size, seed=0, balance=True)
accumulation = max(1, given.global_batch // (given.batch_size * world_size))
collate = DataCollatorForCausalLM(open_tokenizer(given))
data = TrainingData(loader, accumulation=accumulation, collate=collate)
model = open_model(given, rows.max_length)
optimizer = torch.optim.AdamW(model.parameters(), lr=given.learning_rate)
losses: list[float] = []

checkpoint = given.folder / "checkpoint.pt"
if checkpoint.exists():
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    data.load_state_dict(saved["data"])
    losses = saved["losses"]
    say(f"continues after step {len(losses)} on {counted(world_size, 'rank')}")


def save() -> None:
    """All that the run needs, in one file that appears complete or not at all."""
    given.folder.mkdir(parents=True, exist_ok=True)
    unfinished = checkpoint.with_suffix(".unfinished")
    states = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**states, "data": data.state_dict(), "losses": losses}, unfinished)
    unfinished.rename(checkpoint)


def endless(batches):
    """One epoch after another."""
    while True:
        yield from batches


say(proof(model, (collate([row]) for row in rows)))  # once, on the very call that is trained on
wrapped, packed_loss = DistributedDataParallel(model), PackedLoss()
microbatches = endless(data)
while len(losses) < given.steps:
    step = list(islice(microbatches, accumulation))
    total = packed_loss.denominator(step)  # all targets of the step, over all ranks
    loss = torch.zeros(())
    for batch in step:
        part = packed_loss(wrapped(**batch).logits, batch, total)
        part.backward()
        loss += part.detach()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss)
    losses.append(loss.item() / world_size)
    if len(losses) % given.save_every == 0 or len(losses) == given.steps:
        say(f"step {len(losses)}: loss {losses[-1]:.4f}, checkpoint")
        if rank == 0:
            save()
    if len(losses) == given.kill_after:
        os.kill(os.getpid(), signal.SIGKILL)
say(f"curve {curve(losses)}")
dist.destroy_process_group()
