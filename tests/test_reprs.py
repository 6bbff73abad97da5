"""What an object says of itself in a terminal: its size and settings, never an address."""

from __future__ import annotations

import json

import quire
from quire.stream import open_stream


def test_objects_that_hold_data_say_how_much(tmp_path):
    lines = [json.dumps({"text": "word " * n}) + "\n" for n in range(1, 20)]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "out", "byte", max_length=128)
    rows = quire.PackedDataset(tmp_path / "out")
    said = f"PackedDataset('{tmp_path / 'out'}', {len(rows)} rows of 128)"
    assert repr(rows) == said
    loader = rows.loader(2, rank=0, world_size=2)
    steps = len(rows) // 2
    assert repr(loader) == (
        f"PackedLoader({said}, global_batch=2, rank 0 of 2, epoch 0, step 0 of {steps})"
    )


def test_a_packer_says_what_it_holds_back():
    packer = quire.OnlinePacker(8, 64)
    packer.add("a", 3)
    packer.add("b", 2)
    assert repr(packer) == "OnlinePacker(max_length=8, buffer_size=64, 2 documents held)"


def test_a_stream_says_the_shape_of_its_batches():
    config = {"data": {"backend": "local_text", "local_text": "hi", "tokenizer": {"kind": "byte"}}}
    with open_stream({**config, "train": {"seq_len": 8, "batch_size": 2}}) as stream:
        assert repr(stream).startswith("Stream(batches [1, 2, 8], ")


def test_what_loaders_and_trainers_read_says_its_batches_and_place(tmp_path):
    from quire.stream import GrainBatches, TorchBatches
    from quire.training import TrainingData

    (tmp_path / "a.jsonl").write_text('{"text": "some words"}\n' * 20)
    options = {"files": [str(tmp_path / "a.jsonl")], "tokenizer": "byte", "max_length": 16}
    for kind in (GrainBatches, TorchBatches):
        batches = kind(**options, batch_size=2)
        assert repr(batches) == f"{kind.__name__}(batches [2, 16], wrapped, rank 0 of 1)"
    data = TrainingData(batches)
    assert repr(data) == "TrainingData(a stream, rank 0 of 1, epoch 0, 0 done)"
    quire.pack_corpus([tmp_path / "a.jsonl"], tmp_path / "out", "byte", max_length=16)
    data = TrainingData(quire.PackedDataset(tmp_path / "out").loader(2, rank=0, world_size=1))
    assert repr(data).startswith("TrainingData(a loader of packed rows, rank 0 of 1, epoch 0, 0 of")


def test_vision_datasets_say_their_mix_and_packs():
    from quire.vision import FusionDataset, PackedVLDataset, PackingCallback
    from quire.vision.adapters import TrainingPacks

    samples = [{"input_ids": [1] * n, "labels": [1] * n, "length": n} for n in (3, 4, 5)]
    fused = FusionDataset({"a": samples, "b": samples}, {"a": 1.0, "b": 2.0})
    assert repr(fused) == "FusionDataset(a: 3, b: 6, seed=0, epoch 0)"
    packs = PackedVLDataset(samples, packing_length=8)
    callback = PackingCallback(TrainingPacks(packs))
    assert repr(callback) == f"PackingCallback({packs!r}, 0 epochs done)"
    assert repr(packs) == "PackedVLDataset(3 samples, packs of 8, rank 0 of 1, epoch 0)"
