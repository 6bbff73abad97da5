"""One of two ranks that compute the loss of all layouts; started by a test with torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import Trainer, TrainerCallback, TrainingArguments

from quire.collate import DataCollatorForCausalLM
from quire.training import PackedLoss, attach
from tests.training import layouts


def step(layout: str, averaging: str, accumulation: int) -> list[torch.Tensor]:
    """Loss and gradients of one step: every rank has its part of the microbatches."""
    rank, world = dist.get_rank(), dist.get_world_size()
    batches = layouts.microbatches(layout, accumulation * world)[rank::world]
    loss, owner = PackedLoss(averaging=averaging), layouts.model()
    wrapped = DistributedDataParallel(owner)
    total, reported = loss.denominator(batches), torch.zeros((), dtype=torch.float64)
    with wrapped.no_sync():
        for batch in batches[:-1]:
            part = loss(wrapped(**layouts.inputs(batch)).logits, batch, total)
            part.backward()
            reported += part.detach()
    part = loss(wrapped(**layouts.inputs(batches[-1])).logits, batches[-1], total)
    part.backward()
    reported += part.detach()
    dist.all_reduce(reported)
    return [reported / world, *layouts.gradients(owner)]


def trainer_step(
    folder: Path, averaging: str | None, *, average_tokens: bool
) -> list[torch.Tensor]:
    """The gradients of a Trainer's first step; its rows are divided among ranks by accelerate."""
    owner, found = layouts.model(), []
    rows = [layouts.pack(row) for row in layouts.documents()]
    args = TrainingArguments(
        str(folder),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=len(rows) // dist.get_world_size(),
        max_steps=1,
        max_grad_norm=0.0,
        average_tokens_across_devices=average_tokens,
        train_sampling_strategy="sequential",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        save_strategy="no",
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        bf16=False,
    )
    collator = DataCollatorForCausalLM(layouts.TOKENIZER)
    trainer = Trainer(model=owner, args=args, train_dataset=rows, data_collator=collator)
    if averaging is not None:
        attach(trainer, averaging=averaging)
    trainer.add_callback(Recorder(owner, found))
    trainer.train()
    return found[0]


class Recorder(TrainerCallback):
    def __init__(self, owner, found: list) -> None:
        self._owner, self._found = owner, found

    def on_pre_optimizer_step(self, *_: object, **__: object) -> None:
        self._found.append(layouts.gradients(self._owner))


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    found = {
        f"{layout} {averaging} {accumulation}": step(layout, averaging, accumulation)
        for layout in layouts.LAYOUTS
        for averaging in ("token", "document")
        for accumulation in (1, 4)
    }
    for averaging in ("token", "document", None):
        for average_tokens in (True, False):
            gradients = trainer_step(folder, averaging, average_tokens=average_tokens)
            found[f"trainer {averaging} {average_tokens}"] = gradients
    torch.save(found, folder / f"rank{dist.get_rank()}.pt")
    dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
