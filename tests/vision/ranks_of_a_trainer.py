"""One of several ranks of a Trainer, which records what it trained on; started by a test."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from transformers import TrainingArguments

from quire.vision import VisionPackingOptions, configure_training
from tests.vision.language_models import PICTURES, encode, model


def main(folder: Path) -> None:
    dataset = []
    for index in range(16):
        sample = encode("qwen3_vl", "word " * (1 + index % 5), PICTURES[index % len(PICTURES)])
        dataset.append(sample | {"length": len(sample["input_ids"]), "id": index})
    args = TrainingArguments(
        str(folder),
        num_train_epochs=2,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        per_device_train_batch_size=1,
    )
    options = VisionPackingOptions(packing=True, packing_length=96, packing_drop_last=False)
    owner = model("qwen3_vl")
    made = configure_training(args, options, train_dataset=dataset, model=owner)
    trainer = made.make_trainer(model=owner)
    seen = []

    def note(module, positional, keywords):
        seen.append(keywords["id"])

    owner.register_forward_pre_hook(note, with_kwargs=True)
    trainer.train()
    total = sum(weight.detach().double().sum().item() for weight in owner.parameters())
    record = {"seen": seen, "steps": trainer.state.global_step, "total": total}
    (folder / f"rank{args.process_index}.json").write_text(json.dumps(record))
    # Ranks leave together and at once: threads of gloo can abort a process that is shutting down
    # ("terminate called without an active exception"), after all that is tested here was written.
    torch.distributed.barrier()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
