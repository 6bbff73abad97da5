"""Telemetry: exact ratios and percentages, as values, as JSON and as a line."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.vision import PackedVLDataset, aggregate_metrics
from quire.vision.counters import PackCounters
from tests.vision.inputs import KINDS, ByNumber, samples


def recorded(fills, length=100):
    counters = PackCounters(length, epoch=3)
    for tokens in fills:
        pair = [(0, tokens), (1, 0)]
        counters.add("input", pair)
        counters.emit([(pair, False)])
    return counters.telemetry()


@given(st.lists(st.integers(1, 100), min_size=1, max_size=200))
def test_statistics_cover_all_fill_ratios(fills):
    found = recorded(fills)
    ratios = np.array(fills) / 100
    assert found.fill_mean == pytest.approx(ratios.mean())
    for name, share in (("fill_p5", 5), ("fill_p50", 50), ("fill_p95", 95)):
        expected = np.percentile(ratios, share, method="inverted_cdf")
        assert getattr(found, name) == pytest.approx(expected)
    assert found.histogram == tuple(np.bincount(np.minimum(np.array(fills) // 5, 19), minlength=20))
    assert (found.num_packs, found.num_samples) == (len(fills), 2 * len(fills))


def test_the_histogram_has_twenty_steps_and_full_packs_in_the_last():
    assert recorded([100, 95, 94, 4, 5]).histogram == (1, 1, *[0] * 16, 1, 2)


def test_an_epoch_without_packs_has_zeros_and_no_division():
    empty = recorded([])
    assert (empty.num_packs, empty.fill_mean, empty.fill_p50) == (0, 0.0, 0.0)
    assert empty.single_long_percent == empty.skipped_percent == 0.0


def test_long_packs_count_as_full():
    dataset = PackedVLDataset(samples([300, 300]), packing_length=100)
    list(dataset)
    assert dataset.telemetry().fill_mean == 1.0


def test_percentages_include_skipped_samples():
    lengths = [100, 60, 60, 60]
    allowed = PackedVLDataset(samples(lengths), packing_length=100, packing_min_fill_ratio=0.6)
    list(allowed)
    found = allowed.telemetry()
    assert (found.num_single_long, found.single_long_percent, found.num_skipped) == (1, 25.0, 0)
    skipping = PackedVLDataset(
        samples(lengths),
        packing_length=100,
        packing_min_fill_ratio=0.6,
        packing_allow_single_long=False,
    )
    list(skipping)
    found = skipping.telemetry()
    assert (found.num_skipped, found.skipped_percent, found.num_single_long) == (1, 25.0, 0)


def test_telemetry_converts_to_json():
    plain = recorded([50, 70]).to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["fill_mean"] == 0.6
    assert plain["ledger"]["documents"]["emitted"] == 4


def test_metrics_are_flat_numbers():
    metrics = recorded([50, 70]).metrics()
    assert metrics["packing/fill_mean"] == 0.6
    assert all(type(value) is float for value in metrics.values())


def test_the_line_contains_fill_ratios_and_counts():
    line = recorded([50, 70]).line()
    assert "epoch 3: 2 packs of 100 tokens from 4 samples" in line
    assert "fill ratio mean 0.600, p5 0.500, p50 0.500, p95 0.700" in line
    assert "single-long 0 (0.0 %), skipped 0 (0.0 %); dropped: nothing" in line


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_line_is_logged_once_after_the_last_pack(kind, caplog):
    dataset = PackedVLDataset(KINDS[kind](samples([60, 60, 30, 10])), packing_length=100)
    with caplog.at_level(logging.INFO, "quire.vision"):
        packs = iter(dataset)
        next(packs)
        assert not caplog.messages
        list(packs)
        list(packs)
    assert caplog.messages == [dataset.telemetry().line()]


def test_the_telemetry_of_a_rank_is_known_in_advance_if_lengths_are():
    lengths = [(37 * n) % 140 + 1 for n in range(80)]
    dataset = PackedVLDataset(samples(lengths), packing_length=100, packing_buffer=9, world_size=3)
    planned = dataset.planned_telemetry()
    list(dataset)
    assert planned == dataset.telemetry()
    assert PackedVLDataset(ByNumber(samples([3])), packing_length=9).planned_telemetry() is None


def test_planning_telemetry_logs_nothing(caplog):
    with caplog.at_level(logging.INFO, "quire.vision"):
        PackedVLDataset(samples([300]), packing_length=100).planned_telemetry()
    assert caplog.messages == []


def test_metrics_of_single_datasets_are_removed():
    metrics = {
        "loss": 1.0,
        "token_acc": 0.5,
        "chart_loss": 2.0,
        "loss_chart": 2.0,
        "train/chart/token_acc": 0.1,
        "charter_loss": 3.0,
        "packing/fill_mean": 0.9,
    }
    kept = aggregate_metrics(metrics, ["chart", "ai2d"])
    assert set(kept) == {"loss", "token_acc", "charter_loss", "packing/fill_mean"}
    assert aggregate_metrics(metrics) == metrics


def test_metrics_of_the_trainer_stay_regardless_of_dataset_names():
    metrics = {"loss": 1.0, "train_loss": 2.0, "epoch": 1.0, "packing/num_packs": 3.0}
    sources = ["loss", "train", "epoch", "packing"]
    assert aggregate_metrics(metrics | {"train/token_acc": 0.5}, sources) == metrics
