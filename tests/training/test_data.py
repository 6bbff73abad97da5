"""`TrainingData` continues with the very next microbatch, or refuses a state with a reason."""

from __future__ import annotations

import json
from itertools import chain, islice

import numpy as np
import pytest

import quire
from quire.collate import DataCollatorForCausalLM
from quire.errors import InvalidOption, InvalidState
from quire.stream import TorchBatches
from quire.training import TrainingData
from quire.vision import PackedVLDataset

COLLATE = DataCollatorForCausalLM(quire.ByteTokenizer(), padding="max_length", max_length=64)


def packed(corpus, rank=0, world=1, seed=3, accumulation=2, **options) -> TrainingData:
    loader = quire.PackedDataset(corpus / "packed").loader(
        4, seed=seed, rank=rank, world_size=world
    )
    return TrainingData(loader, accumulation=accumulation, collate=COLLATE, **options)


def stream(corpus, rank=0, world=1, tokenizer="byte", max_length=64, **options) -> TrainingData:
    batches = TorchBatches(
        files=[str(corpus / "texts" / "*.jsonl")],
        tokenizer=tokenizer,
        max_length=max_length,
        batch_size=2,
        grad_accum=2,
        repeat=False,
        shuffle_buffer_size=16,
        rank=rank,
        world_size=world,
    )
    return TrainingData(batches, **options)


def packs(corpus, length=40, **options) -> TrainingData:
    samples = [{"length": 5 + n % 9, "input_ids": [n] * (5 + n % 9)} for n in range(60)]
    given = PackedVLDataset(samples, packing_length=length, packing_drop_last=False)
    return TrainingData(
        given,
        collate=lambda pack: {
            "input_ids": np.concatenate([sample["input_ids"] for sample in pack])
        },
        **options,
    )


KINDS = {"packed": packed, "stream": stream, "packs": packs}


def tokens(batches) -> list[list[int]]:
    return [np.asarray(batch["input_ids"]).ravel().tolist() for batch in batches]


def joined(batches: list[list[int]], number: int) -> list[list[int]]:
    """Every so many of them as one."""
    groups = [batches[n : n + number] for n in range(0, len(batches), number)]
    return [list(chain.from_iterable(group)) for group in groups]


def epochs(data: TrainingData, number: int) -> list[list[int]]:
    return [batch for _ in range(number) for batch in tokens(data)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_microbatch_is_a_point_to_continue_from(corpus, kind):
    expected = epochs(KINDS[kind](corpus), 2)
    given = KINDS[kind](corpus)
    states = []
    for _ in range(2):
        states += [json.dumps(given.state_dict()) for _ in given]
    assert len(states) == len(expected) > 12
    for done in {1, 2, 5, len(expected) // 2 - 1, len(expected) // 2, len(expected) // 2 + 1}:
        resumed = KINDS[kind](corpus)
        resumed.load_state_dict(json.loads(states[done - 1]))
        found = [batch for _ in range(3) for batch in tokens(resumed)][: len(expected) - done]
        assert found == expected[done:], done


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_workers_change_nothing(corpus, kind):
    expected = epochs(KINDS[kind](corpus), 1)
    given = KINDS[kind](corpus, num_workers=2)
    batches = iter(given)
    assert tokens(islice(batches, 5)) == expected[:5]
    state = json.loads(json.dumps(given.state_dict()))
    for workers in (0, 2, 3):
        resumed = KINDS[kind](corpus, num_workers=workers)
        resumed.load_state_dict(state)
        assert tokens(resumed) == expected[5:]


@pytest.mark.parametrize("kind", ["packed", "stream"])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_another_world_size_continues_with_the_same_steps(corpus, kind, before, after):
    def of_ranks(world, state=None, number=4):
        found = []
        for rank in range(world):
            data = KINDS[kind](corpus, rank, world)
            if state is not None:
                data.load_state_dict(state)
            batches = tokens(islice(iter(data), number))
            found.append(joined(batches, 2))
            state_here = data.state_dict()
        steps = [
            sorted(np.concatenate(step).reshape(-1, 64).tolist())
            for step in zip(*found, strict=True)
        ]
        return steps, state_here

    expected, _ = of_ranks(1, number=8)
    _, state = of_ranks(before)
    assert of_ranks(after, json.loads(json.dumps(state)))[0] == expected[2:]


def test_a_step_is_divided_into_microbatches(corpus):
    whole = tokens(packed(corpus, accumulation=1))
    parts = tokens(packed(corpus, accumulation=4))
    assert joined(parts, 4) == whole
    with pytest.raises(InvalidOption, match=r"4 rows in a step .* accumulation=3 does not divide"):
        packed(corpus, accumulation=3)


def test_the_length_is_that_of_the_epoch_wherever_it_continues(corpus):
    data = packed(corpus)
    total = len(data)
    next(iter(data))
    assert (len(data), data.epoch, data.num_done) == (total, 0, 1)
    with pytest.raises(TypeError, match="length of a stream is not known; give num_steps"):
        len(stream(corpus))
    assert len(stream(corpus, num_steps=7)) == 14


def test_an_epoch_of_a_stream_by_steps_continues_the_stream(corpus):
    expected = tokens(islice(iter(stream(corpus)), 12))
    assert epochs(stream(corpus, num_steps=3), 2) == expected


REFUSED = {
    "another dataset": (packed, {}, lambda corpus, other: packed(other), "dataset is '"),
    "another seed": (
        packed,
        {},
        lambda corpus, _: packed(corpus, seed=4),
        "seed is 3",
    ),
    "another tokenizer": (
        stream,
        {},
        lambda corpus, _: stream(corpus, tokenizer=quire.ByteTokenizer(byte_offset=5)),
        "the tokenizer",
    ),
    "other rows": (stream, {}, lambda corpus, _: stream(corpus, max_length=32), r"max_length"),
    "another kind": (
        stream,
        {},
        lambda corpus, _: packed(corpus),
        "of a stream but",
    ),
    "other packs": (packs, {}, lambda corpus, _: packs(corpus, length=50), "packing_length"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_state_of_other_data_is_refused_before_the_first_microbatch(
    corpus, tmp_path_factory, name
):
    make, options, other, message = REFUSED[name]
    given = make(corpus, **options)
    next(iter(given))
    state = json.loads(json.dumps(given.state_dict()))
    with pytest.raises(InvalidState, match=message):
        other(corpus, other_corpus(tmp_path_factory)).load_state_dict(state)


def other_corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("other")
    rows = [json.dumps({"text": "other " * (n % 7 + 1)}) for n in range(60)]
    (folder / "other.jsonl").write_text("\n".join(rows))
    quire.pack_corpus([folder / "other.jsonl"], folder / "packed", "byte", max_length=64)
    return folder


def test_a_dataset_packed_with_another_tokenizer_is_named(corpus, tmp_path):
    given = packed(corpus)
    state = given.state_dict()
    source = [corpus / "texts-packed.jsonl"]
    tokenizer = quire.ByteTokenizer(byte_offset=7)
    quire.pack_corpus(source, tmp_path / "packed", tokenizer, max_length=64)
    with pytest.raises(InvalidState, match=r"tokenizer is 'byte .*' in the state and 'byte "):
        packed(tmp_path).load_state_dict(state)


def test_a_damaged_state_is_refused(corpus):
    given = packed(corpus)
    state = given.state_dict()
    with pytest.raises(InvalidState, match="was damaged or changed"):
        given.load_state_dict(state | {"position": {}})
    with pytest.raises(InvalidState, match="the list has no state"):
        given.load_state_dict([])


def test_something_else_is_not_training_data():
    with pytest.raises(InvalidOption, match="the training data is a list, but must be"):
        TrainingData([1, 2])
