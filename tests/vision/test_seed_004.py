"""Seed 004, requirement by requirement: one test for each scenario of the dataset.

The collators' scenarios (mRoPE, flattening) and the trainer's (batch size, evaluation batches,
metrics of a run) have tests beside them; here is what the wrapper, fusion and telemetry promise.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest

from quire.config import load_options
from quire.vision import (
    FusionDataset,
    PackedVLDataset,
    VisionConfig,
    VisionPackingOptions,
    aggregate_metrics,
    calculate_matched_group,
    evaluation_template,
)
from tests.vision.inputs import KINDS, ByNumber, numbers, samples


def template(max_length=80):
    return SimpleNamespace(max_length=max_length, packing=False, padding_free=False)


def vl_sample(number, text, image_tokens):
    """Prompt, image and answer, already encoded, as a Qwen-VL processor gives them."""
    ids = [101, *[7] * image_tokens, *range(1000, 1000 + text)]
    return {
        "input_ids": ids,
        "labels": [-100] * (1 + image_tokens) + ids[1 + image_tokens :],
        "length": len(ids),
        "pixel_values": np.full((4 * image_tokens, 6), number, dtype=np.float32),
        "image_grid_thw": np.array([[1, 4, image_tokens]]),
        "channel": "charts",
        "number": number,
    }


@pytest.fixture(params=list(KINDS))
def kind(request):
    return KINDS[request.param]


# Requirement: Rank-local VL packing wrapper


def test_packing_enabled_for_training(kind):
    """Lists of samples within the length; the template is told. (Batch size: the trainer.)"""
    options = load_options(VisionConfig, {"training": {"packing": True}}).training
    told = template(max_length=64)
    items = [vl_sample(n, text=5 + n % 9, image_tokens=2 * (n % 4)) for n in range(50)]
    dataset = PackedVLDataset.from_options(kind(items), options, template=told, image_token_id=7)
    packs = list(dataset)
    assert packs
    assert all(sum(item["length"] for item in pack) <= 64 for pack in packs)
    assert (told.packing, told.padding_free) == (True, True)
    assert dataset.packing_length == 64


# Requirement: Bin-packing with carry-over buffer


def test_buffer_fill_and_emission(kind):
    """Golden: full groups leave at once, the underfilled one is in the next buffer's packs."""
    lengths = [30, 30, 20, 60, 50, 10, 40]
    dataset = PackedVLDataset(
        kind(samples(lengths)),
        packing_length=80,
        packing_buffer=6,
        packing_min_fill_ratio=0.6,
        packing_drop_last=True,
    )
    assert numbers(dataset) == [[0, 4], [2, 3], [1, 5, 6]]
    groups, carried = calculate_matched_group(list(enumerate(lengths[:6])), 80, is_finished=False)
    assert [sorted(n for n, _ in group) for group in groups] == [[2, 3], [0, 4]]
    assert sorted(n for n, _ in carried) == [1, 5]


@pytest.mark.parametrize("drop_last", [True, False])
def test_buffer_fill_and_emission_at_epoch_end(kind, drop_last):
    dataset = PackedVLDataset(
        kind(samples([60, 20, 10])), packing_length=80, packing_drop_last=drop_last
    )
    assert numbers(dataset) == ([[0, 1]] if drop_last else [[0, 1], [2]])
    dropped = dataset.telemetry().ledger.documents.dropped
    assert dropped == ({"drop_last": 1} if drop_last else {})


# Requirement: Oversized sample handling


def test_single_long_sample(kind, caplog):
    """Allowed: alone, whole, logged, with its -100 tail as upstream left it."""
    long = {"input_ids": list(range(120)), "labels": list(range(80)) + [-100] * 40, "length": 120}
    before = copy.deepcopy(long)
    dataset = PackedVLDataset(kind([long]), packing_length=80)
    with caplog.at_level(logging.INFO, "quire.vision"):
        packs = list(dataset)
    assert len(packs) == 1
    assert packs[0][0] is long
    assert long == before
    assert any("sample 0 gets a pack of its own: its length of 120" in m for m in caplog.messages)
    assert dataset.telemetry().num_single_long == 1


def test_single_long_sample_not_allowed(kind, caplog):
    """Not allowed: dropped, with a warning."""
    dataset = PackedVLDataset(
        kind(samples([120, 60])), packing_length=80, packing_allow_single_long=False
    )
    with caplog.at_level(logging.WARNING, "quire.vision"):
        assert numbers(dataset) == [[1]]
    skipped = [record for record in caplog.records if "skipped sample 0" in record.message]
    assert [record.levelno for record in skipped] == [logging.WARNING]
    assert dataset.telemetry().ledger.tokens.dropped == {"skipped_oversized": 120}


# Requirement: Multimodal field preservation and position_ids


def test_packed_collator_compatibility(kind):
    """Every field of every sample arrives as the object that went in; collators take it there."""
    items = [vl_sample(n, text=9, image_tokens=4) for n in range(12)]
    packs = list(PackedVLDataset(kind(items), packing_length=80, image_token_id=7))
    arrived = {item["number"]: item for pack in packs for item in pack}
    assert arrived
    for number, item in arrived.items():
        assert item is items[number]
        assert set(item) == set(vl_sample(0, 9, 4))
        assert (item["pixel_values"] == number).all()


# Requirement: Fusion integration


class Recorded(FusionDataset):
    """Records the epochs that are set."""

    def set_epoch(self, epoch):
        super().set_epoch(epoch)
        self.epochs = [*getattr(self, "epochs", []), epoch]


def test_fusion_with_packing_enabled():
    """The fusion's schedule first, then packs of the new order; the mix is the ratios'."""
    parts = {
        "charts": ByNumber([vl_sample(n, 20, 2) for n in range(40)]),
        "text": ByNumber(samples([15] * 20)),
    }
    fused = Recorded(parts, {"charts": 0.5, "text": 2.0}, seed=1)
    dataset = PackedVLDataset(fused, packing_length=80, packing_drop_last=False)
    orders = []
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        assert fused.epochs[-1] == epoch
        assert dataset.telemetry().num_packs == 0  # packing starts over
        orders.append([[id(item) for item in pack] for pack in dataset])
        emitted = {n: part.documents.emitted for n, part in dataset.source_ledgers().items()}
        assert emitted == {"charts": 20, "text": 40}
    assert orders[0] != orders[1]


# Requirement: Metric and telemetry behavior


def test_metrics_under_packing(kind, caplog):
    """Aggregates only; the log has fill ratios and counts of single-long packs."""
    dataset = PackedVLDataset(kind(samples([60, 20, 100, 50, 30])), packing_length=80)
    with caplog.at_level(logging.INFO, "quire.vision"):
        list(dataset)
    line = caplog.messages[-1]
    assert "fill ratio mean 1.000, p5 1.000, p50 1.000, p95 1.000" in line
    assert "single-long 1 (33.3 %), skipped 0 (0.0 %)" in line
    reported = {"loss": 1.0, "token_acc": 0.5, "charts_loss": 2.0, **dataset.telemetry().metrics()}
    kept = aggregate_metrics(reported, ["charts", "text"])
    assert set(reported) - set(kept) == {"charts_loss"}


# Requirement: Configuration surface


def test_default_config_application():
    """Enabled without a knob: drop-last on, a fill of at least 0.6, the template's length."""
    options = load_options(VisionConfig, {"training": {"packing": True}}).training
    dataset = PackedVLDataset.from_options([], options, template=template(4096))
    assert dataset.packing_length == 4096
    assert dataset.options.packing_buffer == 512
    assert dataset.options.packing_min_fill_ratio == 0.65  # at least 0.6
    assert dataset.options.packing_drop_last is True
    assert dataset.options.packing_allow_single_long is True
    assert PackedVLDataset([], packing_length=8).options == VisionPackingOptions(
        packing=True, packing_length=8
    )


def test_global_max_length_sets_the_templates_length():
    told = template(512)
    dataset = PackedVLDataset([], template=told, global_max_length=4096)
    assert (told.max_length, dataset.packing_length) == (4096, 4096)
    dataset = PackedVLDataset([], template=told, global_max_length=4096, packing_length=1024)
    assert (told.max_length, dataset.packing_length) == (4096, 1024)


def test_every_knob_of_the_seed_has_its_name():
    assert {part.name for part in fields(VisionPackingOptions)} >= {
        "packing",
        "packing_length",
        "packing_buffer",
        "packing_min_fill_ratio",
        "packing_drop_last",
        "packing_allow_single_long",
        "eval_packing",
        "global_max_length",
    }


# Requirement: Eval default off


def test_training_packed_eval_not():
    """The training template is packed; evaluation's copy is neither packed nor padding-free."""
    told = template()
    PackedVLDataset([], template=told)
    unpacked = evaluation_template(told)
    assert (unpacked.packing, unpacked.padding_free) == (False, False)
    assert (told.packing, told.padding_free) == (True, True)
    assert unpacked.max_length == told.max_length
    assert VisionPackingOptions().eval_packing is False
