"""The global sequence of batches is the same for every world size and number of workers."""

from __future__ import annotations

import copy
import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from quire.collate import DataCollatorForCausalLM
from quire.errors import InvalidOption, InvalidState
from quire.packed import PackedDataset
from quire.packed.loader import LoaderOptions
from tests.corpus.corpora import jsonl, pack, texts
from tests.option_fields import integer_fields
from tests.sealing import resealed

WORLDS = (1, 2, 3, 4, 6, 8, 12)
GLOBAL = 24


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> PackedDataset:
    folder = tmp_path_factory.mktemp("packed")
    pack(jsonl(folder / "a.jsonl", texts(150)), folder / "out", partition_size=2000)
    found = PackedDataset(folder / "out")
    assert len(found) > 10 * GLOBAL
    return found


def ranks(dataset, world, **options):
    return [dataset.loader(GLOBAL, rank=r, world_size=world, **options) for r in range(world)]


def steps(loaders, epoch=0):
    """The rows of every step over all ranks, from the loaders' current position."""
    return [
        np.concatenate([loader.rows(epoch, step) for loader in loaders]).tolist()
        for step in range(loaders[0].step, loaders[0].steps_per_epoch)
    ]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("epoch", [0, 3])
def test_the_sequence_is_the_same_for_every_world_size(dataset, world, epoch):
    assert steps(ranks(dataset, world), epoch) == steps(ranks(dataset, 1), epoch)


@pytest.mark.parametrize("world", WORLDS)
def test_balance_keeps_the_rows_of_every_step(dataset, world):
    balanced = steps(ranks(dataset, world, balance=True))
    assert [sorted(step) for step in balanced] == [sorted(s) for s in steps(ranks(dataset, 1))]


def test_balance_evens_the_cost(dataset):
    def worst(**options):
        loaders = ranks(dataset, 4, **options)
        costs = np.array(
            [[loader._costs(loader.rows(0, s)).sum() for loader in loaders] for s in range(10)]
        )
        return (costs.max(axis=1) / costs.mean(axis=1)).mean()

    assert worst(balance=True) < worst()


def test_ranks_are_disjoint_complete_and_equal_in_steps(dataset):
    for world in WORLDS:
        loaders = ranks(dataset, world)
        assert len({len(loader) for loader in loaders}) == 1
        seen = [row for step in steps(loaders) for row in step]
        assert len(seen) == len(set(seen)) == len(dataset) - loaders[0].num_left_over


def test_every_epoch_and_every_seed_has_its_own_order(dataset):
    first = steps(ranks(dataset, 1))
    assert first != steps(ranks(dataset, 1), epoch=1)
    assert first != steps(ranks(dataset, 1, seed=1))
    assert steps(ranks(dataset, 1, shuffle=False))[0] == list(range(GLOBAL))


def test_a_state_can_be_resumed_with_any_world_size(dataset):
    """All pairs, at random steps, through the serialized state, with and without balance."""
    choose = random.Random(0)
    for balance in (False, True):
        expected = [sorted(step) for step in steps(ranks(dataset, 1))]
        for before in WORLDS:
            for after in WORLDS:
                stop = choose.randrange(1, len(expected) - 1)
                old = ranks(dataset, before, balance=balance)
                for loader in old:
                    for _ in zip(range(stop), loader, strict=False):
                        pass
                states = {json.dumps(loader.state_dict()) for loader in old}
                assert len(states) == 1, "the state is the same on every rank"
                new = ranks(dataset, after, balance=balance)
                for loader in new:
                    loader.load_state_dict(json.loads(states.copy().pop()))
                assert [sorted(step) for step in steps(new)] == expected[stop:]


def test_iterating_again_continues_with_the_next_epoch(dataset):
    loader = dataset.loader(GLOBAL)
    for epoch in range(2):
        for step, batch in enumerate(loader):
            expected = [dataset[row]["input_ids"].tolist() for row in loader.rows(epoch, step)]
            assert [row["input_ids"].tolist() for row in batch] == expected
        assert (loader.epoch, loader.step) == (epoch + 1, 0)
        assert step + 1 == loader.steps_per_epoch


def test_a_state_resumes_exactly_at_every_step(dataset):
    whole = [[r["input_ids"].tolist() for r in batch] for batch in dataset.loader(GLOBAL)]
    for stop in range(len(whole)):
        loader = dataset.loader(GLOBAL)
        for _ in zip(range(stop), loader, strict=False):
            pass
        state = json.dumps(loader.state_dict())
        again = dataset.loader(GLOBAL)
        again.load_state_dict(json.loads(state))
        rest = [[r["input_ids"].tolist() for r in batch] for batch in again]
        assert rest == whole[stop:]


def test_batches_are_collated(dataset):
    torch = pytest.importorskip("torch")

    class Tokenizer:
        pad_token_id, eos_token_id, bos_token_id = 0, 2, 1

    loader = dataset.loader(4, collate=DataCollatorForCausalLM(Tokenizer()))
    batch = next(iter(loader))
    assert batch["input_ids"].shape[0] == 4
    assert torch.equal(
        batch["input_ids"] == 0, batch["labels"].where(batch["input_ids"] == 0, 1) != 1
    )


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("form", ["batches", "sampler"])
def test_the_sequence_is_the_same_for_every_number_of_workers(dataset, workers, form):
    data = pytest.importorskip("torch.utils.data")
    loader = dataset.loader(GLOBAL, world_size=3, rank=1)
    loader.load_state_dict(loader.state_after(0, 2))
    if form == "batches":
        given = data.DataLoader(loader.torch(), batch_size=None, num_workers=workers)
    else:
        given = data.DataLoader(
            dataset, batch_sampler=loader.row_numbers(), collate_fn=list, num_workers=workers
        )
    found = [[row["input_ids"].tolist() for row in batch] for batch in given]
    expected = [[row["input_ids"].tolist() for row in batch] for batch in loader]
    assert found == expected
    assert len(found) == loader.steps_per_epoch - 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "persistent"), [("fork", False), ("fork", True), ("spawn", True)]
)
def test_workers_start_every_pass_at_the_loader_s_position(dataset, start, persistent):
    data = pytest.importorskip("torch.utils.data")
    loader = dataset.loader(4)
    workers = {"num_workers": 2, "persistent_workers": persistent, "multiprocessing_context": start}
    given = data.DataLoader(loader.torch(), batch_size=None, **workers)

    def tokens(batches):
        return [[row["input_ids"].tolist() for row in batch] for batch in batches]

    for epoch, step in ((0, 0), (1, 0), (5, 3), (5, 3), (2, 1)):
        loader.load_state_dict(json.loads(json.dumps(loader.state_after(epoch, step))))
        expected = tokens(loader.batch(epoch, s) for s in range(step, loader.steps_per_epoch))
        assert tokens(given) == expected
        for batch in given:  # an interrupted pass has no effect
            assert tokens([batch]) == expected[:1]
            break
    for _ in zip(range(2), loader, strict=False):  # iterating moves the loader as well
        pass
    assert tokens(given) == tokens(loader.batch(2, s) for s in range(3, loader.steps_per_epoch))


def test_copies_of_a_torch_view_share_their_position_only_with_their_own_workers(dataset):
    loader = dataset.loader(4)
    batches = loader.torch()
    pickled = pickle.loads(pickle.dumps(batches))  # noqa: S301 - our own
    for copied in (copy.deepcopy(batches), pickled):
        copied._loader.load_state_dict(loader.state_after(2, 1))
        assert copied._position.read() == (2, 1) and copied._position._numbers.is_shared()
    assert batches._position.read() == (0, 0)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata's own call
@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_resumes_exactly(dataset, workers):
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def make():
        numbers = dataset.loader(GLOBAL).row_numbers()
        return stateful(dataset, batch_sampler=numbers, collate_fn=list, num_workers=workers)

    def tokens(batches):
        return [[row["input_ids"].tolist() for row in batch] for batch in batches]

    whole = tokens(make())
    given = make()
    head = tokens(batch for _, batch in zip(range(4), given, strict=False))
    state = given.state_dict()
    again = make()
    again.load_state_dict(state)
    assert head + tokens(again) == whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world_size": 5}, "world_size=5 does not divide global_batch=24"),
        ({"world_size": 2, "rank": 2}, "rank is 2 but world_size is 2"),
        ({"rank": -1}, "rank is -1"),
        ({"epoch": -1}, "epoch is -1"),
        ({"shuffle": "no"}, "shuffle is 'no' but must be True or False"),
    ],
)
def test_an_impossible_rank_or_world_size_is_refused(dataset, options, message):
    with pytest.raises(InvalidOption, match=message):
        dataset.loader(GLOBAL, **options)


def test_a_batch_larger_than_the_dataset_is_refused(dataset):
    with pytest.raises(InvalidOption, match=r"is more than the .* rows of"):
        dataset.loader(10**6)


@pytest.mark.parametrize("ask", ["batch", "rows"])
def test_a_step_after_the_last_is_refused_with_both_numbers(dataset, ask):
    loader = dataset.loader(GLOBAL)
    count = loader.steps_per_epoch
    assert len(getattr(loader, ask)(0, count - 1)) == GLOBAL
    for step in (count, 999):
        message = f"step is {step} but an epoch has {count}: use 0 to {count - 1}"
        with pytest.raises(InvalidOption, match=message):
            getattr(loader, ask)(0, step)


@pytest.mark.parametrize(
    ("epoch", "step", "message"),
    [
        (0, -1, "step is -1 but must be an integer >= 0"),
        (-1, 0, "epoch is -1 but must be an integer >= 0"),
        (0, 1.5, "step is 1.5 but must be an integer >= 0"),
        (None, 0, "epoch is None but must be an integer >= 0"),
    ],
)
def test_an_invalid_epoch_or_step_is_refused(dataset, epoch, step, message):
    with pytest.raises(InvalidOption, match=message):
        dataset.loader(GLOBAL).batch(epoch, step)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 9}, "seed is 9 in the state and 0 here"),
        ({"global_batch": 12}, "global_batch is 12 in the state and 24 here"),
        ({"dataset": "x"}, "dataset is 'x' in the state"),
        ({"version": 4}, "has version 4 but this quire reads up to 3; upgrade quire"),
        ({"more": 1}, r"has the fields .*'more'.* but must have .*; use a state as state_dict"),
        (
            {"format": "quire.vision"},
            "not a state of a loader of packed rows: its format is 'quire.v",
        ),
        ({"step": -1}, "step is -1"),
        ({"step": True}, "step is True"),
        ({"epoch": None}, "epoch is None"),
        ({"step": 10**6}, "but an epoch has"),
    ],
)
def test_a_state_of_something_else_is_refused(dataset, change, message):
    loader = dataset.loader(GLOBAL)
    with pytest.raises(InvalidState, match=message):
        loader.load_state_dict(resealed(loader.state_dict() | change))


def test_27_a_number_that_changed_in_a_state_is_detected(dataset):
    loader = dataset.loader(GLOBAL)
    with pytest.raises(InvalidState, match="it was damaged or changed; use an earlier state"):
        loader.load_state_dict(loader.state_dict() | {"step": 1})


def test_29_a_state_of_version_1_is_migrated(dataset):
    """It had no seal, and `sharded` only if it was set."""
    loader = dataset.loader(GLOBAL)
    said = {"dataset": dataset.fingerprint, "rows": len(dataset), "global_batch": GLOBAL}
    old = {"version": 1, "epoch": 3, "step": 1, **said, "seed": 0, "shuffle": True}
    loader.load_state_dict(old)
    assert (loader.epoch, loader.step) == (3, 1)
    assert loader.state_dict() == resealed(
        {**old, "format": "quire.loader", "version": 3, "sharded": False}
    )
    sharded = dataset.loader(GLOBAL, sharded=True)
    with pytest.raises(InvalidState, match="sharded is False in the state and True here"):
        sharded.load_state_dict(old)
    sharded.load_state_dict(old | {"sharded": True})
    assert sharded.epoch == 3


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int32])
def test_numpy_integers_are_accepted(dataset, kind):
    numbers = {"rank": 1, "world_size": 2, "seed": 3, "epoch": 4}
    plain = dataset.loader(GLOBAL, **numbers)
    loader = dataset.loader(kind(GLOBAL), **{name: kind(n) for name, n in numbers.items()})
    last = plain.steps_per_epoch - 1  # times the batch, it is more than eight bits hold
    assert loader.rows(kind(4), kind(last)).tolist() == plain.rows(4, last).tolist()
    for one in (plain, loader):
        next(iter(one))
    assert json.dumps(loader.state_dict()) == json.dumps(plain.state_dict())
    assert json.dumps(loader.state_after(kind(1), kind(2))) == json.dumps(plain.state_after(1, 2))


def test_every_integer_option_becomes_a_python_integer():
    numbers = integer_fields(LoaderOptions)
    assert len(numbers) == 4
    options = LoaderOptions(**dict.fromkeys(numbers, np.int64(1)) | {"rank": np.int64(0)})
    assert {type(getattr(options, name)) for name in numbers} == {int}


def test_a_dataset_elsewhere_has_the_same_state(dataset, tmp_path):
    import shutil

    copied = shutil.copytree(dataset.path, tmp_path / "copied")
    other = PackedDataset(Path(copied))
    loader = dataset.loader(GLOBAL)
    next(iter(loader))
    other.loader(GLOBAL).load_state_dict(loader.state_dict())


def test_the_state_after_the_last_step_is_the_start_of_the_next_epoch(dataset):
    loader = dataset.loader(GLOBAL)
    loader.load_state_dict(loader.state_after(2, loader.steps_per_epoch))
    assert (loader.epoch, loader.step) == (3, 0)
    with pytest.raises(InvalidOption, match=r"step is \d+ but an epoch has \d+"):
        loader.state_after(2, loader.steps_per_epoch + 1)
