"""One rank of several whose batches accelerate dispatches; started by a test."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderDispatcher
from datasets import Dataset, IterableDataset
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import quire
from quire.collate import DataCollatorForCausalLM
from quire.stream import TorchBatches
from quire.verify import check_isolation

NUM_STEPS = 3


def packed_texts() -> IterableDataset:
    """A streamed dataset that `block_tokenize_fn` packs."""
    texts = Dataset.from_dict({"text": [f"text {n} " * (n % 3 + 1) for n in range(90)]})
    pack = partial(
        quire.block_tokenize_fn, tokenizer="byte", feature="text", max_length=48, packed=True
    )
    return texts.to_iterable_dataset().map(pack, batched=True, remove_columns=["text"])


def collator() -> DataCollatorForCausalLM:
    return DataCollatorForCausalLM(quire.ByteTokenizer(), padding="max_length", max_length=48)


def stream_config(folder: Path) -> dict:
    (folder / "a.jsonl").write_text("".join(f'{{"text": "text {n}"}}\n' for n in range(90)))
    data = {"files": [str(folder / "a.jsonl")], "shuffle": False, "tokenizer": {"kind": "byte"}}
    return {"data": data, "train": {"seq_len": 32, "batch_size": 2}}


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=384, **sizes, **heads))


def streaming_map(folder: Path) -> dict:
    """A Trainer on a streamed dataset."""
    owner, seen = model(), []
    trainer = Trainer(
        model=owner,
        args=TrainingArguments(
            str(folder),
            per_device_train_batch_size=2,
            max_steps=NUM_STEPS,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
        ),
        train_dataset=packed_texts(),
        data_collator=collator(),
    )
    assert isinstance(trainer.get_train_dataloader(), DataLoaderDispatcher)
    owner.register_forward_pre_hook(lambda _m, _a, kw: seen.append(dict(kw)), with_kwargs=True)
    loss = trainer.train().training_loss
    return {"loss": loss, **described(owner, seen)}


def stream(folder: Path) -> dict:
    """`TorchBatches` under ``accelerator.prepare`` in a custom loop."""
    accelerator, owner = Accelerator(cpu=True), model()
    given = DataLoader(TorchBatches(stream_config(folder)), batch_size=None)
    prepared, loader = accelerator.prepare(owner, given)
    assert isinstance(loader, DataLoaderDispatcher)
    seen = [dict(batch) for _, batch in zip(range(NUM_STEPS), loader, strict=False)]
    loss = prepared(**seen[0]).loss
    accelerator.backward(loss)
    return {"loss": loss.item(), **described(owner, seen)}


def described(owner: LlamaForCausalLM, batches: list[dict]) -> dict:
    names = ("input_ids", "labels", "position_ids", "use_cache")
    first = {name: batches[0][name] for name in names}
    return {
        "tokens": [batch["input_ids"].tolist() for batch in batches],
        "use_cache": [bool(batch["use_cache"]) for batch in batches],
        "verdict": check_isolation(owner, first).verdict,
    }


if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    found = {"streaming_map": streaming_map, "stream": stream}[name](folder)
    rank = Accelerator().process_index
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
