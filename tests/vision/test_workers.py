"""Workers of a user's own loader follow epochs, or raise an error if they cannot."""

from __future__ import annotations

import copy
import pickle

import pytest
from torch.utils.data import DataLoader

from quire.errors import InvalidState
from quire.vision import FusionDataset, PackedVLDataset

SAMPLES = [{"id": n, "length": n * 37 % 61 + 3} for n in range(60)]


def packed():
    fused = FusionDataset({"a": SAMPLES}, seed=2)
    return PackedVLDataset(fused, packing_length=100, packing_buffer=16)


def ids(packs):
    return [[sample["id"] for sample in pack] for pack in packs]


def epoch_packs(epoch, num_packs=None):
    dataset = packed()
    dataset.fix_num_packs(num_packs)
    dataset.set_epoch(epoch)
    return ids(dataset)


def persistent(dataset, num_workers=1, **options):
    return DataLoader(
        dataset, batch_size=None, num_workers=num_workers, persistent_workers=True, **options
    )


def unpickled(dataset):
    return pickle.loads(pickle.dumps(dataset))  # noqa: S301 - our own bytes


@pytest.mark.parametrize("copied", [lambda dataset: dataset, copy.deepcopy, unpickled])
def test_persistent_workers_follow_the_epoch(copied):
    dataset = copied(packed())
    loader = persistent(dataset, num_workers=2)
    for epoch in (0, 1, 1, 5):
        dataset.set_epoch(epoch)
        assert sorted(ids(loader)) == sorted(epoch_packs(epoch))


@pytest.mark.slow
def test_persistent_workers_that_were_spawned_follow_the_epoch():
    dataset = packed()
    loader = persistent(dataset, multiprocessing_context="spawn")
    for epoch in (0, 3):
        dataset.set_epoch(epoch)
        assert ids(loader) == epoch_packs(epoch)


def test_persistent_workers_follow_skipped_packs_and_a_fixed_number_of_them():
    dataset = packed()
    loader = persistent(dataset)
    assert ids(loader) == epoch_packs(0)
    dataset.set_epoch(1)
    dataset.skip_packs(4)
    assert ids(loader) == epoch_packs(1)[4:]
    number = len(epoch_packs(2)) + 2
    dataset.set_epoch(2)
    dataset.fix_num_packs(number)
    assert ids(loader) == epoch_packs(2, number)


def test_a_state_loaded_after_persistent_workers_started_is_rejected():
    dataset = packed()
    loader = persistent(dataset)
    next(packs := iter(dataset))
    state = dataset.state_dict()
    assert ids(loader) == epoch_packs(0)
    dataset.load_state_dict(state)
    with pytest.raises(InvalidState, match="make a new DataLoader after load_state_dict"):
        ids(loader)
    assert ids(persistent(dataset)) == ids(packs)  # one worker, whose part is the whole
    dataset.set_epoch(1)  # which discards the state
    assert ids(persistent(dataset)) == epoch_packs(1)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_packs_are_skipped_once_by_workers_that_are_created_for_every_pass(num_workers):
    dataset = packed()
    loader = DataLoader(dataset, batch_size=None, num_workers=num_workers)
    for _ in range(2):
        dataset.skip_packs(4)
        assert ids(loader) == epoch_packs(0)[4:]
        assert ids(loader) == epoch_packs(0)
    dataset.skip_packs(4)
    assert next(iter(loader))  # an abandoned pass has skipped them too
    assert ids(loader) == ids(dataset) == epoch_packs(0)


def test_a_state_is_continued_once_by_a_worker_that_is_created_for_every_pass():
    dataset = packed()
    dataset.set_epoch(1)
    next(packs := iter(dataset))
    dataset.load_state_dict(dataset.state_dict())
    loader, rest = DataLoader(dataset, batch_size=None, num_workers=1), ids(packs)
    assert ids(loader) == rest
    assert ids(loader) == epoch_packs(1)
    dataset.set_epoch(1)  # the state is used up, so the epoch starts over
    assert ids(loader) == ids(dataset) == epoch_packs(1)


@pytest.mark.parametrize("persistent_workers", [False, True])
def test_a_state_of_the_main_process_is_rejected_by_several_workers(persistent_workers):
    dataset = packed()
    next(iter(dataset))
    dataset.load_state_dict(dataset.state_dict())
    loader = DataLoader(
        dataset, batch_size=None, num_workers=2, persistent_workers=persistent_workers
    )
    with pytest.raises(InvalidState, match=r"of part \[0, 1\] .* part \[0, 2\].*skip_packs"):
        ids(loader)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_what_is_set_in_a_worker_stays_in_the_worker():
    """torchdata's loader loads states inside of its workers."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    dataset = packed()
    loader = stateful.StatefulDataLoader(dataset, batch_size=None, num_workers=2)
    packs = iter(loader)
    first = ids([next(packs) for _ in range(3)])
    state = loader.state_dict()
    other = packed()
    again = stateful.StatefulDataLoader(other, batch_size=None, num_workers=2)
    again.load_state_dict(state)
    assert first + ids(again) == ids(DataLoader(packed(), batch_size=None, num_workers=2))
    assert ids(other) == epoch_packs(0)
