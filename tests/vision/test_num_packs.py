"""Every epoch can have the same number of packs, and packs can be skipped without reading them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from quire.errors import InvalidOption
from quire.vision import FusionDataset, PackedVLDataset
from quire.vision.adapters import TrainingPacks

SIZES = [(n * 37) % 61 + 3 for n in range(90)]


class Samples:
    """Samples by number; records those that were read."""

    def __init__(self):
        self.read = []

    def __len__(self):
        return len(SIZES)

    def __getitem__(self, number):
        self.read.append(number)
        return {"id": number, "length": SIZES[number]}


def packed(samples=None, **options):
    fused = FusionDataset(
        {"a": samples or [{"id": n, "length": size} for n, size in enumerate(SIZES)]},
        lengths={"a": SIZES},
        seed=2,
    )
    return PackedVLDataset(fused, packing_length=100, packing_buffer=16, **options)


def ids(packs):
    return [[sample["id"] for sample in pack] for pack in packs]


def flat(packs):
    return list(itertools.chain.from_iterable(packs))


def counts(dataset, num_epochs=6):
    found = []
    for epoch in range(num_epochs):
        dataset.set_epoch(epoch)
        found.append(len(dataset))
    return found


def test_epochs_of_equal_length_lose_no_sample():
    dataset = packed(packing_drop_last=False)
    free = counts(dataset)
    assert len(set(free)) > 1  # so there is something to even out
    dataset.fix_num_packs(max(free))
    assert counts(dataset) == [max(free)] * len(free)
    for epoch in range(len(free)):
        dataset.set_epoch(epoch)
        packs = list(dataset)
        assert len(packs) == max(free)
        assert sorted(flat(ids(packs))) == list(range(len(SIZES)))
        assert all(sum(sample["length"] for sample in pack) <= 100 for pack in packs)
        assert dataset.telemetry().num_packs == dataset.planned_telemetry().num_packs == max(free)


def test_a_longer_epoch_keeps_its_underfilled_group_before_it_splits_a_pack():
    samples = [{"id": n, "length": size} for n, size in enumerate([9, 5, 4, 2])]
    dataset = PackedVLDataset(samples, packing_length=10)
    assert ids(dataset) == [[0], [1, 2]]  # sample 3 is an underfilled group
    dataset.fix_num_packs(3)
    assert ids(dataset) == [[0], [1, 2], [3]]
    assert dataset.telemetry().ledger.documents.num_dropped == 0
    dataset.fix_num_packs(4)
    assert ids(dataset) == [[0], [1], [2], [3]]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 64), min_size=1, max_size=60),
    st.integers(1, 4),
    st.integers(1, 6),
    st.booleans(),
)
def test_no_rank_drops_a_pack_in_an_epoch_that_is_longer_than_planned(
    lengths, world, num_epochs, drop_last
):
    """All ranks together: nothing is dropped in an epoch in which a pack is split."""
    fused = FusionDataset({"a": [{"id": n, "length": size} for n, size in enumerate(lengths)]})
    options = {"packing_length": 40, "packing_buffer": 7, "packing_drop_last": drop_last}
    ranks = [
        PackedVLDataset(fused, rank=rank, world_size=world, **options) for rank in range(world)
    ]
    fewest = len(lengths) // world  # samples of a rank
    try:
        planned = [counts(rank, num_epochs) for rank in ranks]
    except InvalidOption:
        assume(False)  # without packing_drop_last a rank may have too few samples
    for rank in ranks:
        TrainingPacks(rank, world).equalize_epochs(num_epochs)
    evened = [counts(rank, num_epochs) for rank in ranks]
    number = evened[0][0]
    assert {n for each in evened for n in each} == {number}
    for epoch in range(num_epochs):
        if planned[0][epoch] == number:
            continue
        for rank in ranks:
            rank.set_epoch(epoch)
        dropped = [rank.planned_telemetry().ledger.documents.num_dropped for rank in ranks]
        assert not any(dropped) or number == fewest  # no rank with so few can split any further


def test_an_epoch_with_enough_packs_is_not_changed():
    dataset = packed()
    before = ids(dataset)
    dataset.fix_num_packs(len(before))
    assert ids(dataset) == before


def test_a_number_of_packs_above_the_samples_or_below_the_plan_is_rejected():
    dataset = packed()
    dataset.fix_num_packs(len(SIZES) + 1)
    with pytest.raises(InvalidOption, match=r"has \d+ samples but another rank has 91 packs"):
        len(dataset)
    dataset.fix_num_packs(2)
    with pytest.raises(InvalidOption, match=r"an epoch has \d+ packs but num_packs is 2"):
        len(dataset)


def test_a_number_that_one_rank_cannot_reach_is_an_error_on_every_rank():
    samples = [{"id": n, "length": 70} for n in range(5)]  # rank 1 has two of them
    for rank in range(2):
        dataset = PackedVLDataset(samples, packing_length=80, rank=rank, world_size=2)
        dataset.fix_num_packs(3)
        with pytest.raises(InvalidOption, match="rank 1 has 2 samples but another rank has 3"):
            len(dataset)


@pytest.mark.parametrize("num_skipped", [0, 1, 7, 1000])
def test_skipped_packs_are_not_read_and_count_as_delivered(num_skipped):
    samples = Samples()
    dataset = packed(samples)
    whole = ids(dataset)
    telemetry = dataset.telemetry()
    samples.read.clear()
    dataset.set_epoch(0)
    dataset.skip_packs(num_skipped)
    rest = ids(dataset)
    assert rest == whole[num_skipped:]
    assert sorted(samples.read) == sorted(flat(rest))
    assert dataset.telemetry() == telemetry
    assert ids(dataset) == whole  # only the next iteration skips


@pytest.mark.parametrize("num_skipped", [0, 1, 5, 8])
@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_skip_the_same_packs_as_one_process(num_workers, num_skipped):
    dataset = packed()
    whole = ids(dataset)
    dataset.set_epoch(0)
    dataset.skip_packs(num_skipped)
    loader = DataLoader(dataset, batch_size=None, num_workers=num_workers)
    assert sorted(ids(loader)) == sorted(whole[num_skipped:])


def test_a_new_epoch_skips_nothing():
    dataset = packed()
    dataset.skip_packs(3)
    dataset.set_epoch(1)
    assert len(ids(dataset)) == len(dataset)


def test_packs_of_unknown_lengths_cannot_be_skipped():
    dataset = PackedVLDataset([{"input_ids": [1]}], packing_length=8)
    with pytest.raises(TypeError, match="give lengths="):
        dataset.skip_packs(1)
