"""Ranks and workers: disjoint, complete, and with equally many packs if lengths are known."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import InvalidOption
from quire.ledger import Ledger
from quire.vision import PackedVLDataset
from quire.vision.grouping import Group
from quire.vision.plan import split_groups
from quire.vision.workers import Share
from tests.vision.inputs import ByNumber, InOrder, numbers, samples

WORLDS = range(1, 9)
LENGTHS = [(37 * n) % 90 + 1 for n in range(203)]


def ranks(dataset, world, **options):
    options = {"packing_length": 80, "packing_buffer": 11, "world_size": world, **options}
    return [PackedVLDataset(dataset, rank=rank, **options) for rank in range(world)]


def flat(packs):
    return [number for pack in packs for number in pack]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("make", [ByNumber, InOrder])
def test_ranks_of_unknown_lengths_are_disjoint_and_complete(world, make):
    parts = ranks(make(samples(LENGTHS)), world, packing_drop_last=False)
    seen = [number for part in parts for number in flat(numbers(part))]
    assert sorted(seen) == list(range(203))


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_of_known_lengths_have_equally_many_packs_and_count_the_dropped_surplus(world):
    parts = ranks(samples(LENGTHS), world)
    packs = [numbers(part) for part in parts]
    assert {len(mine) for mine in packs} == {len(parts[0])}
    seen = [number for mine in packs for number in flat(mine)]
    assert len(seen) == len(set(seen))
    ledger = sum((part.telemetry().ledger for part in parts), Ledger()).check()
    assert (ledger.documents.input, ledger.documents.emitted) == (203, len(seen))
    assert ledger.documents.pending == 0
    assert set(ledger.documents.dropped) <= {"drop_last", "rank_equalize"}


def test_a_surplus_is_counted_as_rank_equalize():
    parts = ranks(samples([70] * 5), 2)  # ranks of three samples and of two
    assert [numbers(part) for part in parts] == [[[0], [2]], [[1], [3]]]
    dropped = [part.telemetry().ledger.documents.dropped for part in parts]
    assert dropped == [{"rank_equalize": 1}, {}]


@pytest.mark.parametrize("world", WORLDS)
def test_without_drop_last_packs_are_split_and_nothing_is_lost(world):
    parts = ranks(samples(LENGTHS), world, packing_drop_last=False)
    packs = [numbers(part) for part in parts]
    assert len({len(mine) for mine in packs}) == 1
    assert sorted(number for mine in packs for number in flat(mine)) == list(range(203))
    assert all(part.telemetry().ledger.documents.num_dropped == 0 for part in parts)


def test_too_few_samples_to_split_packs_is_an_error_with_its_remedy():
    parts = ranks(samples([70] * 5), 2, packing_drop_last=False)
    for part in parts:  # on every rank, so that none waits for another
        with pytest.raises(InvalidOption, match="rank 1 has 2 samples but another rank has 3"):
            len(part)


def test_fewer_samples_than_ranks_give_no_pack_and_are_all_counted():
    parts = ranks(samples([70] * 3), 4)
    assert [list(part) for part in parts] == [[], [], [], []]
    ledger = sum((part.telemetry().ledger for part in parts), Ledger()).check()
    assert ledger.documents.dropped == {"rank_equalize": 3}


def test_a_rank_outside_the_world_size_is_rejected():
    with pytest.raises(InvalidOption, match="rank is 2 but must be below world_size, 2"):
        PackedVLDataset([], packing_length=8, rank=2, world_size=2)
    with pytest.raises(InvalidOption, match="world_size is 0"):
        PackedVLDataset([], packing_length=8, world_size=0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 120), max_size=80),
    st.integers(1, 8),
    st.integers(1, 20),
    st.booleans(),
)
def test_ranks_agree_for_any_lengths(lengths, world, buffer, allow_long):
    options = {"packing_buffer": buffer, "packing_allow_single_long": allow_long}
    parts = ranks(samples(lengths), world, **options)
    packs = [numbers(part) for part in parts]
    assert len({len(mine) for mine in packs}) == 1
    for mine in packs:
        for pack in mine:
            assert sum(lengths[n] for n in pack) <= 80 or len(pack) == 1
    ledger = sum((part.telemetry().ledger for part in parts), Ledger()).check()
    assert (ledger.documents.input, ledger.tokens.input) == (len(lengths), sum(lengths))
    assert ledger.tokens.emitted == sum(lengths[n] for mine in packs for n in flat(mine))


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=6))
def test_splitting_keeps_every_sample_and_makes_the_requested_number_of_groups(lists):
    tokens = np.array([n for group in lists for n in group])
    ends = np.cumsum([0, *map(len, lists)])
    groups = [
        Group(positions=tuple(range(a, b)), tokens=int(tokens[a:b].sum()))
        for a, b in pairwise(ends)
    ]
    for wanted in range(len(groups), len(tokens) + 1):
        split = split_groups(groups, wanted, tokens)
        assert len(split) == wanted
        assert [p for group in split for p in group.positions] == list(range(len(tokens)))
        assert all(g.tokens == tokens[list(g.positions)].sum() for g in split)


def test_shares_of_workers_divide_the_share_of_their_rank():
    rank = Share.of_rank(1, 3)
    own = [n for n in range(30) if rank.owns(n)]
    parts = [rank.divided(Share(index=w, count=2)) for w in range(2)]
    assert [[n for n in range(30) if part.owns(n)] for part in parts] == [own[::2], own[1::2]]
    assert [parts[1].number(k) for k in range(3)] == own[1::2][:3]


def test_a_numpy_integer_as_rank_saves_the_same_state():
    plain, of_numpy = (
        PackedVLDataset(
            ByNumber(samples(LENGTHS)), rank=kind(1), world_size=kind(2), packing_length=80
        )
        for kind in (int, np.int64)
    )
    for dataset in (plain, of_numpy):
        next(iter(dataset))
    assert json.dumps(of_numpy.state_dict()) == json.dumps(plain.state_dict())


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_of_known_lengths_yield_the_same_packs_in_the_same_order(workers):
    data = pytest.importorskip("torch.utils.data")
    dataset = ranks(samples(LENGTHS), 2)[1]
    expected = numbers(dataset)
    loader = data.DataLoader(dataset, batch_size=None, num_workers=workers)
    assert numbers(loader) == expected
    assert len(loader) == len(expected)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("make", [ByNumber, InOrder])
def test_workers_of_unknown_lengths_are_disjoint_and_complete(workers, make):
    data = pytest.importorskip("torch.utils.data")
    parts = ranks(make(samples(LENGTHS)), 2, packing_drop_last=False)
    seen = []
    for part in parts:
        seen += flat(numbers(data.DataLoader(part, batch_size=None, num_workers=workers)))
    assert sorted(seen) == list(range(203))


def test_a_dataset_that_splits_itself_among_workers_is_not_split_twice():
    data = pytest.importorskip("torch.utils.data")
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_list(samples(LENGTHS)).to_iterable_dataset(num_shards=4)
    parts = ranks(stream, 2, packing_drop_last=False)
    seen = []
    for part in parts:
        seen += flat(numbers(data.DataLoader(part, batch_size=None, num_workers=2)))
    assert sorted(seen) == list(range(203))


def test_known_lengths_of_a_dataset_that_splits_itself_are_rejected_in_workers():
    data = pytest.importorskip("torch.utils.data")
    datasets = pytest.importorskip("datasets")
    stream = datasets.Dataset.from_list(samples([5] * 8)).to_iterable_dataset(num_shards=2)
    dataset = PackedVLDataset(stream, packing_length=9, packing_drop_last=False, lengths=[5] * 8)
    assert len(list(dataset)) == 8
    with pytest.raises(InvalidOption, match="splits itself among 2 workers"):
        list(data.DataLoader(dataset, batch_size=None, num_workers=2))
