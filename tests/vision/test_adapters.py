"""Packs by number and packs without a length, as other trainers expect them."""

from __future__ import annotations

import logging

import datasets
import pytest
import torch
from accelerate.data_loader import BatchSamplerShard, DataLoaderShard, SkipBatchSampler
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from quire.errors import InvalidDocument, InvalidLengths, InvalidOption
from quire.vision import FusionDataset, PackedVLDataset
from tests.vision.inputs import ByNumber, InOrder, numbers, sample, samples

LENGTHS = [(37 * n) % 61 + 3 for n in range(60)]


def packed(items=None, **options):
    items = samples(LENGTHS) if items is None else items
    return PackedVLDataset(items, **({"packing_length": 80, "packing_buffer": 16} | options))


def test_packs_by_number_equal_the_packs_in_order():
    expected = numbers(packed())
    packs = packed().map_style()
    assert not isinstance(packs, IterableDataset)
    assert len(packs) == len(expected)
    assert [numbers([packs[n]])[0] for n in range(len(packs))] == expected
    assert numbers(packs) == expected  # until IndexError
    assert packs[-1] == packs[len(packs) - 1]
    assert packs[torch.tensor(0)] == packs[0]
    assert packs.packed_length == [sum(LENGTHS[n] for n in pack) for pack in expected]
    with pytest.raises(IndexError):
        packs[len(packs)]


def test_packs_by_number_change_with_the_epoch_in_persistent_workers_too():
    fused = FusionDataset({"a": samples(LENGTHS)}, seed=1)
    packs = packed(fused).map_style()
    loader = DataLoader(packs, batch_size=None, num_workers=1, persistent_workers=True)
    seen = []
    for epoch in (0, 1):
        packs.set_epoch(epoch)
        reference = packed(FusionDataset({"a": samples(LENGTHS)}, seed=1))
        reference.set_epoch(epoch)
        seen.append(numbers(loader))
        assert seen[-1] == numbers(reference)
    assert seen[0] != seen[1]


def test_the_map_style_form_has_what_ms_swifts_trainer_uses():
    """`_show_dataset`, `_stat_dataset` and `get_train_dataloader` of ms-swift 4.6."""
    rows = [{**item, "lengths": [item.pop("length")]} for item in samples(LENGTHS)]
    dataset = packed(ByNumber(rows), lengths=[row["lengths"] for row in rows]).map_style()
    assert hasattr(dataset, "__len__")
    assert dataset[0][0]["input_ids"]
    assert min(dataset.packed_length) > 0
    seen = []
    for rank in range(2):
        sampler = BatchSampler(RandomSampler(dataset, generator=_seeded()), 1, drop_last=False)
        shard = BatchSamplerShard(sampler, num_processes=2, process_index=rank, even_batches=False)
        loader = DataLoaderShard(
            dataset, batch_sampler=SkipBatchSampler(shard), collate_fn=lambda batch: batch
        )
        seen += [number for (pack,) in loader for number in numbers([pack])[0]]
    dropped = {n for _, n in dataset.packed.current_epoch().schedule.dropped}
    assert sorted(seen) == sorted(set(range(60)) - dropped)


def _seeded():
    return torch.Generator().manual_seed(3)


def test_the_iterable_form_has_no_length_for_ms_swifts_dispatcher():
    packs = packed().iterable_style()
    assert isinstance(packs, IterableDataset)
    assert not hasattr(packs, "__len__")
    loader = DataLoader(packs, batch_size=1, collate_fn=lambda batch: batch)
    assert [numbers(batch)[0] for batch in loader] == numbers(packed())
    with pytest.raises(TypeError):
        len(loader)
    packs.set_epoch(3)
    assert packs.packed.epoch == 3
    next(rest := iter(packs))
    other = packed().iterable_style()
    other.load_state_dict(packs.state_dict())
    assert numbers(other) == numbers(rest)


def test_the_iterable_form_accepts_unknown_lengths():
    items = [{k: v for k, v in item.items() if k != "length"} for item in samples(LENGTHS)]
    assert numbers(packed(InOrder(items)).iterable_style()) == numbers(packed())


@pytest.mark.parametrize("style", ["map_style", "iterable_style"])
def test_packs_of_a_single_rank_are_rejected_because_the_trainer_assigns_packs(style):
    with pytest.raises(InvalidOption, match=r"rank 1 of 2.*leave rank and world_size out"):
        getattr(packed(rank=1, world_size=2), style)()


def test_packs_by_number_need_random_access_and_known_lengths():
    with pytest.raises(InvalidOption, match=r"InOrder is read in order.*iterable_style\(\)"):
        packed(InOrder(samples(LENGTHS)), lengths=LENGTHS).map_style()
    with pytest.raises(InvalidOption, match="packs by number need known lengths; give lengths="):
        packed(ByNumber(samples(LENGTHS))).map_style()


def test_packs_by_number_accept_a_table_with_a_column_of_lengths():
    table = datasets.Dataset.from_list([{"input_ids": [1] * n, "lengths": [n]} for n in LENGTHS])
    assert len(packed(table).map_style()) == len(packed())


def test_a_bad_sample_is_skipped_in_its_pack_and_counted_once(caplog):
    items = samples([30, 30, 20])
    items[2] |= {"length": 20, "labels": [1]}
    packs = packed(items, packing_drop_last=False, max_bad_records=1).map_style()
    with caplog.at_level(logging.WARNING, "quire.vision"):
        assert [numbers([packs[0]]) for _ in range(3)] == [[[0, 1]]] * 3
    assert len([line for line in caplog.messages if "skipped sample 2" in line]) == 1
    with pytest.raises(InvalidDocument, match="sample 2 has 20 input_ids and 1 labels"):
        packed(items, packing_drop_last=False).map_style()[0]


def test_a_sample_of_another_length_than_planned_is_an_error():
    packs = packed(ByNumber([sample(0, 5)]), lengths=[4], packing_drop_last=False).map_style()
    with pytest.raises(InvalidLengths, match=r"sample 0 measures \[5\]"):
        packs[0]
