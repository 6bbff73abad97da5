"""Fusion: quotas by ratio, a schedule by seed and epoch, and a mix that packing keeps."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.errors import InvalidOption
from quire.ledger import Ledger
from quire.vision import FusionDataset, PackedVLDataset
from tests.vision.inputs import ByNumber, InOrder, Reordered, numbers, samples


def located(fused):
    return [fused.locate(position) for position in range(len(fused))]


def drawn(fused, name):
    return Counter(index for source, index in located(fused) if source == name)


@given(
    st.integers(0, 40), st.floats(0, 3, allow_nan=False), st.integers(0, 9), st.integers(0, 1000)
)
def test_quotas_are_rounded_and_no_sample_repeats_before_all_were_used(pool, ratio, epoch, seed):
    fused = FusionDataset({"a": range(pool), "b": range(3)}, {"a": ratio, "b": 1}, seed)
    fused.set_epoch(epoch)
    counts = drawn(fused, "a")
    assert counts.total() == fused.quotas["a"] == round(pool * ratio)
    assert drawn(fused, "b") == Counter(range(3))
    if counts.total() <= pool:
        assert all(number == 1 for number in counts.values())
    else:
        assert set(counts) == set(range(pool))


def test_the_schedule_is_a_function_of_seed_and_epoch():
    parts = {"a": range(50), "b": range(20)}
    ratios = {"a": 0.5, "b": 1.5}
    fused, again = FusionDataset(parts, ratios, seed=3), FusionDataset(parts, ratios, seed=3)
    first = located(fused)
    fused.set_epoch(1)
    second = located(fused)
    again.set_epoch(1)
    assert located(again) == second != first
    fused.set_epoch(0)
    assert located(fused) == first
    assert located(FusionDataset(parts, ratios, seed=4)) != first


def test_the_order_of_dataset_names_does_not_matter():
    parts = {"a": range(50), "b": range(20), "c": range(30)}
    backwards = dict(reversed(parts.items()))
    assert located(FusionDataset(parts, seed=3)) == located(FusionDataset(backwards, seed=3))


def test_another_epoch_draws_another_part_of_a_dataset():
    fused = FusionDataset({"a": range(100)}, {"a": 0.3})
    first = drawn(fused, "a")
    fused.set_epoch(1)
    assert set(drawn(fused, "a")) != set(first)


def test_the_schedule_of_a_seed_never_changes():
    """Golden: changing it would change every run that has started."""
    fused = FusionDataset({"a": range(4), "b": range(2)}, {"a": 0.5, "b": 2}, seed=1)
    assert located(fused) == [("a", 1), ("b", 0), ("b", 1), ("b", 0), ("a", 0), ("b", 1)]


def test_a_ratio_of_zero_leaves_a_dataset_out():
    fused = FusionDataset({"a": range(5), "b": range(5)}, {"a": 1, "b": 0})
    assert {name for name, _ in located(fused)} == {"a"}


def test_datasets_without_ratios_are_used_completely():
    fused = FusionDataset({"a": range(5), "b": range(2)})
    assert sorted(located(fused)) == [("a", n) for n in range(5)] + [("b", n) for n in range(2)]


def test_samples_are_the_datasets_own_objects():
    items = samples([3, 4])
    fused = FusionDataset({"a": items})
    assert {id(fused[0]), id(fused[1])} == {id(item) for item in items}
    assert fused[-1] is fused[1]
    with pytest.raises(IndexError):
        fused[2]


def test_set_epoch_reaches_the_fused_datasets_first():
    inner = Reordered(samples([3, 4, 5]))
    fused = FusionDataset({"a": inner})
    fused.set_epoch(4)
    assert inner.epochs == [0, 4]


@pytest.mark.parametrize(
    ("datasets", "ratios", "message"),
    [
        ({"a": [1]}, {"a": -0.5}, r"the ratio of dataset 'a' is -0\.5 but must be a finite"),
        ({"a": [1]}, {"a": float("nan")}, "is nan"),
        ({"a": [1]}, {"a": float("inf")}, "is inf"),
        ({"a": [1]}, {"a": "1"}, "is '1'"),
        ({"a": [1]}, {"a": True}, "is True"),
        ({"a": [1], "b": [1]}, {"a": 1}, "dataset 'b' has no ratio"),
        ({"charts": [1]}, {"chart": 1}, "unknown dataset in ratios 'chart'; did you mean 'charts'"),
        ({}, None, "must map names to datasets"),
        ([1], None, "must map names to datasets"),
        ({"": [1]}, None, "non-empty strings"),
        ({"a": [1]}, {"a": 0}, "leave no samples"),
        ({"a": [1]}, [1.0], r"ratios is \[1\.0\] but must map"),
        ({"a": [1]}, {"a": 1e15}, "which gives more than 4294967296 samples from 1"),
        ({"a": [1]}, {"a": 10**400}, "must be a finite number"),
        ({"a": {"train": [1]}}, None, "dataset 'a' is dict but needs"),
        ({"a": InOrder([1])}, None, "dataset 'a' is InOrder but needs __len__"),
    ],
)
def test_invalid_datasets_and_ratios_are_errors(datasets, ratios, message):
    with pytest.raises(InvalidOption, match=message):
        FusionDataset(datasets, ratios)


def test_setting_the_epoch_of_only_the_fused_dataset_is_an_error():
    fused = FusionDataset({"a": samples([3] * 30)}, {"a": 0.5})
    packed = PackedVLDataset(fused, packing_length=10)
    packs = numbers(packed)
    fused.set_epoch(5)
    with pytest.raises(InvalidOption, match="is at epoch 5 but its packs are at 0; call set_epoch"):
        iter(packed)
    again = PackedVLDataset(fused, packing_length=10)
    assert again.epoch == 5
    packed.set_epoch(0)
    assert numbers(packed) == packs
    again.set_epoch(5)
    assert sorted(numbers(again)) != sorted(packs)


def test_lengths_of_unknown_datasets_are_errors():
    with pytest.raises(InvalidOption, match="unknown dataset in lengths 'b'"):
        FusionDataset({"a": [1]}, lengths={"b": [1]})


def fused_parts(make):
    lengths = {"a": [(37 * n) % 90 + 1 for n in range(60)], "b": [15] * 30}
    return {name: make(samples(values)) for name, values in lengths.items()}


@pytest.mark.parametrize("make", [list, ByNumber])
def test_packing_changes_the_mix_only_by_what_each_source_drops(make):
    fused = FusionDataset(fused_parts(make), {"a": 0.5, "b": 2.0}, seed=9)
    dataset = PackedVLDataset(
        fused, packing_length=80, packing_buffer=11, packing_allow_single_long=False
    )
    for epoch in range(3):
        dataset.set_epoch(epoch)
        packs = list(dataset)
        ledgers = dataset.source_ledgers()
        assert {n: part.documents.input for n, part in ledgers.items()} == fused.quotas
        assert sum(part.documents.emitted for part in ledgers.values()) == sum(map(len, packs))
        assert ledgers["a"].documents.dropped["skipped_oversized"] > 0
        assert ledgers["b"].documents.dropped["skipped_oversized"] == 0
        assert sum(ledgers.values(), Ledger()) == dataset.telemetry().ledger


def test_source_ledgers_balance_in_the_middle_of_an_epoch():
    fused = FusionDataset(fused_parts(ByNumber), {"a": 0.5, "b": 2.0}, seed=9)
    dataset = PackedVLDataset(fused, packing_length=80, packing_buffer=11)
    for _ in dataset:
        assert all(part.check() for part in dataset.source_ledgers().values())


def test_lengths_are_known_if_those_of_all_sources_are():
    fused = FusionDataset(fused_parts(list), {"a": 0.5, "b": 2.0})
    dataset = PackedVLDataset(fused, packing_length=80)
    assert len(dataset) == len(list(dataset))
    parts = fused_parts(ByNumber)
    lengths = {name: [item["length"] for item in part.items] for name, part in parts.items()}
    fused = FusionDataset(parts, {"a": 0.5, "b": 2.0}, lengths=lengths)
    given = PackedVLDataset(fused, packing_length=80)
    assert len(given) == len(dataset)


def test_lengths_are_unknown_if_those_of_one_source_are():
    parts = {"a": samples([5, 6]), "b": ByNumber(samples([7]))}
    with pytest.raises(TypeError, match="not known"):
        len(PackedVLDataset(FusionDataset(parts), packing_length=80))


def test_ranks_of_a_fused_dataset_are_disjoint_in_every_epoch():
    fused = FusionDataset(fused_parts(ByNumber), {"a": 1, "b": 1})
    for epoch in range(2):
        seen = []
        for rank in range(3):
            part = PackedVLDataset(
                fused, packing_length=80, packing_drop_last=False, rank=rank, world_size=3
            )
            part.set_epoch(epoch)
            seen += [id(item) for pack in part for item in pack]
        assert len(seen) == len(set(seen)) == 90


@pytest.mark.parametrize("drop_last", [True, False])
def test_ranks_of_a_fused_dataset_with_known_lengths_have_equally_many_packs(drop_last):
    fused = FusionDataset(fused_parts(list), {"a": 0.7, "b": 1.5}, seed=2)
    parts = [
        PackedVLDataset(
            fused, packing_length=80, packing_drop_last=drop_last, rank=rank, world_size=4
        )
        for rank in range(4)
    ]
    for epoch in range(3):
        for part in parts:
            part.set_epoch(epoch)
        packs = [list(part) for part in parts]
        assert len({len(mine) for mine in packs}) == 1
        by_source = [part.source_ledgers() for part in parts]
        for name, quota in fused.quotas.items():
            ledger = sum((ledgers.get(name, Ledger()) for ledgers in by_source), Ledger())
            assert ledger.check().documents.input == quota
            assert drop_last or ledger.documents.emitted == quota
