"""How the files of an earlier version were made, with public calls only."""

from __future__ import annotations

import json
from types import SimpleNamespace

from quire.plan import OnlinePacker
from quire.vision import PackedVLDataset
from tests.vision.inputs import ByNumber, samples

CORPUS = {"max_length": 24, "strategy": "best_fit", "seed": 5, "max_bad_records": 1}
LENGTHS = [(37 * n) % 31 + 1 for n in range(40)]
PLAN = {"strategy": "best_fit", "shuffle": True, "seed": 3, "prefix": 1, "overlong": "split"}


def write_inputs(folder):
    texts = ["abcdefgh" * (1 + n % 5) for n in range(12)]
    lines = [json.dumps({"text": text}) for text in texts]
    (folder / "a.jsonl").write_text("\n".join([*lines[:4], "{", *lines[4:]]) + "\n")


def rows_of(dataset):
    return [
        [dataset[n]["input_ids"].tolist(), dataset[n]["document_starts"].tolist()]
        for n in range(len(dataset))
    ]


def take_batches(loader, count):
    batches = iter(loader)
    return [[row["input_ids"].tolist() for row in next(batches)] for _ in range(count)]


def online():
    return OnlinePacker(20, buffer_size=4, max_documents_per_row=3, align=2)


def feed(packer, start, stop):
    rows = []
    for key in range(start, stop):
        rows += packer.add(key, (7 * key) % 19 + 1)
    return rows


def rows_of_plan(plan):
    names = ("row_offsets", "documents", "starts", "stops")
    return {name: getattr(plan, name).tolist() for name in names}


def vision():
    options = {"packing_length": 80, "packing_buffer": 11}
    items = samples([(37 * n) % 90 + 1 for n in range(60)])
    return {
        "known": PackedVLDataset(items, **options),
        "by_number": PackedVLDataset(ByNumber(items), **options),
        "epoch": PackedVLDataset(items, packing_max_documents=3, packing_scope="epoch", **options),
    }


def checkpoint(folder):
    """A callback of packed training, and what a Trainer gives it at step 3."""
    from quire.vision.adapters import TrainingPacks
    from quire.vision.callback import PackingCallback

    callback = PackingCallback(TrainingPacks(vision()["known"]))
    arguments = SimpleNamespace(
        output_dir=str(folder),
        gradient_accumulation_steps=1,
        ignore_data_skip=False,
        save_total_limit=None,
    )
    state = SimpleNamespace(global_step=3, is_world_process_zero=True, best_model_checkpoint=None)
    return callback, arguments, state


def save_checkpoint(folder):
    (folder / "checkpoint-3").mkdir()
    callback, arguments, state = checkpoint(folder)
    callback.on_save(arguments, state, None)
