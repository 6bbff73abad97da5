"""ms-swift's own packing dataset and trainer, if installed, with our parts in them."""

from __future__ import annotations

from types import SimpleNamespace

import datasets
import pytest
import torch

from quire.collate import VisionPaddingFreeCollator
from quire.vision import PackedVLDataset, calculate_matched_group

packing = pytest.importorskip("swift.dataset.packing", exc_type=ImportError)
mixin = pytest.importorskip("swift.trainers.mixin", exc_type=ImportError)
sft = pytest.importorskip("swift.pipelines.train.sft", exc_type=ImportError)

pytestmark = pytest.mark.slow

LENGTHS = [(37 * n) % 90 + 1 for n in range(203)] + [150]


def encode(row, return_length=False):
    ids = [row["number"]] * row["size"]
    sizes = {"length": len(ids), "lengths": [len(ids)]} if return_length else {}
    return {"input_ids": ids, "labels": list(ids), "number": row["number"], **sizes}


@pytest.fixture
def lazy():
    """ms-swift's encoded dataset, whose column ``lengths`` holds lists."""
    rows = [{"number": n, "size": size, "lengths": [size]} for n, size in enumerate(LENGTHS)]
    return sft.LazyLLMDataset(datasets.Dataset.from_list(rows), encode, strict=True)


@pytest.fixture
def template():
    return SimpleNamespace(
        max_length=80, sequence_parallel_size=1, print_inputs=lambda inputs: inputs["input_ids"]
    )


@pytest.fixture
def packed(lazy, template):
    return PackedVLDataset(
        lazy, template=template, lengths=lazy["lengths"], packing_drop_last=False
    )


@pytest.mark.parametrize("strategy", ["binpack", "sequential"])
def test_ms_swifts_worker_groups_with_our_function(monkeypatch, lazy, template, strategy):
    monkeypatch.setattr(packing, "calculate_matched_group", calculate_matched_group)
    made = packing.PackingDataset(template, lazy, packing_length=80, packing_strategy=strategy)
    assert sorted(n for pack in made.packed_idx for n in pack) == list(range(len(LENGTHS)))
    packs = zip(made.packed_idx, made.packed_length, strict=True)
    longer = [pack for pack, size in packs if size > 80]
    assert sorted(longer) == [[n] for n, size in enumerate(LENGTHS) if size > 80]


def test_ms_swifts_sequential_groups_equal_ours(lazy, template):
    theirs = packing.PackingDataset(template, lazy, packing_strategy="sequential")
    ours, _ = calculate_matched_group(list(enumerate(LENGTHS)), 80, strategy="sequential")
    assert theirs.packed_idx == [[n for n, _ in group] for group in ours]


def test_ms_swifts_pipeline_accepts_both_forms(packed, template):
    pipeline = sft.SwiftSft.__new__(sft.SwiftSft)
    pipeline.template, pipeline.train_msg = template, {}
    pipeline.args = SimpleNamespace(lazy_tokenize=False, streaming=False)
    pipeline._show_dataset(packed.map_style(), None)
    assert f"size={len(packed)}" in pipeline.train_msg["train_dataset"]
    pipeline.args.streaming = True
    pipeline._show_dataset(packed.iterable_style(), None)


@pytest.mark.parametrize("style", ["map_style", "iterable_style"])
def test_ms_swifts_loader_delivers_every_sample_once(packed, template, style):
    loader = train_loader(getattr(packed, style)(), template)
    batches = list(loader)
    assert len(batches) == len(packed)
    assert sorted(n for batch in batches for n in batch["number"]) == list(range(len(LENGTHS)))
    assert max(batch["input_ids"].shape[1] for batch in batches) == 150
    skipped = train_loader(getattr(packed, style)(), template, skip_batches=5)
    assert len(list(skipped)) == len(packed) - 5


def train_loader(dataset, template, **options):
    class Trainer(mixin.DataLoaderMixin):
        pass

    trainer = Trainer()
    trainer.template, trainer.train_dataset, trainer._train_batch_size = template, dataset, 1
    trainer.data_collator = VisionPaddingFreeCollator()
    trainer.accelerator = SimpleNamespace(device=torch.device("cpu"))
    trainer.args = SimpleNamespace(
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        dataloader_persistent_workers=False,
        dataloader_prefetch_factor=None,
        dataloader_drop_last=False,
        train_dataloader_shuffle=True,
        data_seed=3,
        deepspeed=None,
        group_by_length=False,
        process_index=0,
    )
    return trainer.get_train_dataloader(**options)
