"""A rank's share is never divided again, and copies of the data on all ranks are warned of."""

from __future__ import annotations

import pytest
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader, DistributedSampler

import quire
from quire.errors import InvalidOption
from quire.training import sharding
from tests.training.test_data import COLLATE, packed, stream


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(sharding, "_warned", False)


def prepared(loader: DataLoader) -> DataLoader:
    return prepare_data_loader(loader, num_processes=2, process_index=0)


def shares(corpus):
    """Loaders of rank 0 of 2, as users would hand them to accelerate."""
    rows = quire.PackedDataset(corpus / "packed")
    loader = rows.loader(4, rank=0, world_size=2, collate=COLLATE)
    yield DataLoader(loader.torch(), batch_size=1, collate_fn=lambda batch: batch[0])
    yield DataLoader(rows, batch_sampler=loader.row_numbers(), collate_fn=COLLATE)
    data = stream(corpus, 0, 2).source.batches
    yield DataLoader(data, batch_size=1, collate_fn=lambda batch: batch[0])


@pytest.mark.parametrize("number", range(3))
def test_accelerate_may_not_divide_the_share_of_a_rank(corpus, number):
    loader = list(shares(corpus))[number]
    next(iter(loader))  # by itself it is fine
    with pytest.raises(InvalidOption, match=r"rank 0 of 2, but accelerate's .*Shard would divide"):
        next(iter(prepared(loader)))


def test_accelerate_may_divide_what_is_opened_for_all_ranks(corpus):
    loader = quire.PackedDataset(corpus / "packed").loader(4, collate=COLLATE)
    given = DataLoader(loader.torch(), batch_size=1, collate_fn=lambda batch: batch[0])
    assert next(iter(prepared(given)))["input_ids"].shape[0] == 4


def test_copies_of_the_data_on_all_ranks_are_warned_of_once(corpus, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match=r"2 processes train: each .* rank= and world_size=2"):
        next(iter(packed(corpus)))
    next(iter(packed(corpus)))
    next(iter(packed(corpus, 1, 2)))


@pytest.mark.parametrize("is_sampled", [False, True])
def test_a_sampler_over_training_data_is_refused(corpus, is_sampled):
    data = packed(corpus, 0, 2)
    sampler = DistributedSampler(data, num_replicas=2, rank=0) if is_sampled else None
    with pytest.raises(InvalidOption, match=r"not a dataset: .*iterate over it"):
        next(iter(DataLoader(data, batch_size=None, sampler=sampler)))


def test_a_distributed_sampler_over_batches_of_a_loader_is_refused(corpus):
    loader = quire.PackedDataset(corpus / "packed").loader(4, collate=COLLATE)
    batches = loader.torch()
    with pytest.raises(ValueError, match="IterableDataset"):
        DataLoader(batches, sampler=DistributedSampler([0] * 8, num_replicas=2, rank=0))
