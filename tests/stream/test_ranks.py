"""Ranks: the global sequence of batches is the same for every world, and so are its states."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from quire.errors import InvalidOption, InvalidState
from quire.stream import StreamOptions, open_stream
from quire.stream.open import StreamArguments
from quire.stream.pipeline import RankRows
from tests.quick import few
from tests.stream.inputs import (
    LENGTHS,
    ListSource,
    Numbers,
    config,
    same,
    shards_of,
    take,
    unique_documents,
)

DOCUMENTS = unique_documents(LENGTHS * 2)
WORLDS = (1, 2, 3, 4, 6, 12)


def options_of(num_streams, *, mode="sequential", repeat=True, shuffle=True, **more):
    return config(
        batch_size=12,
        grad_accum=2,
        packing_mode=mode,
        packing_buffer_docs=5,
        shuffle=shuffle,
        shuffle_buffer_size=4,
        num_streams=num_streams,
        repeat=repeat,
        emit_position_ids=True,
        **more,
    )


class World:
    """All ranks of one world."""

    def __init__(self, options, world_size, num_shards=5):
        self.streams = [
            open_stream(
                options,
                rank=rank,
                world_size=world_size,
                source=ListSource(shards_of(DOCUMENTS, num_shards)),
                tokenizer=Numbers(),
            )
            for rank in range(world_size)
        ]

    def take(self, count=None):
        """Global batches: those of the ranks, side by side."""
        per_rank = [take(stream, count) for stream in self.streams]
        assert len({len(batches) for batches in per_rank}) == 1
        return [
            {
                name: np.concatenate([batch.to_dict()[name] for batch in batches], axis=1)
                for name in batches[0].to_dict()
            }
            for batches in zip(*per_rank, strict=True)
        ]

    def states(self):
        return json.loads(json.dumps([stream.get_state() for stream in self.streams]))

    def restore(self, state):
        for stream in self.streams:
            stream.set_state(state)


def equal(one, other):
    return len(one) == len(other) and all(
        a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("num_streams", [1, 2, 3, 4, 12])
@pytest.mark.parametrize("mode", ["sequential", "bin", "online"])
def test_global_batches_do_not_depend_on_the_world_size(num_streams, mode):
    options = options_of(num_streams, mode=mode)
    expected = World(options, 1).take(4)
    for world_size in WORLDS[1:]:
        assert equal(World(options, world_size).take(4), expected), world_size


@pytest.mark.filterwarnings("ignore:of [24] streams, .* ended before the others")
@pytest.mark.parametrize("num_streams", [1, 2, 4])
@pytest.mark.parametrize("last_batch", ["pad", "drop"])
def test_all_ranks_end_together_and_nothing_is_lost(num_streams, last_batch):
    options = options_of(num_streams, repeat=False, last_batch=last_batch)
    world = World(options, 1)
    expected = world.take()
    ledger = world.streams[0].ledger.check()
    assert ledger.documents.input == len(DOCUMENTS)
    assert ledger.documents.pending == 0
    if last_batch == "pad":
        assert ledger.tokens.emitted == ledger.tokens.input
        inputs = np.concatenate([batch["input_ids"][batch["attention_mask"]] for batch in expected])
        real = inputs[inputs >= 10]
        assert len(set(real.tolist())) == len(real)  # no document in two streams
    for world_size in (2, 3, 4):
        assert equal(World(options, world_size).take(), expected)


@pytest.mark.parametrize("num_streams", [1, 2, 4])
@pytest.mark.parametrize(("before", "after"), few(product((1, 2, 4), (1, 3, 4)), one_in=2))
def test_a_state_of_one_world_size_resumes_with_another(num_streams, before, after):
    """Fault 32: exact."""
    options = options_of(num_streams, mode="online")
    expected = World(options, 1).take(6)
    for step in (0, 1, 3):
        world = World(options, before)
        world.take(step)
        states = world.states()
        new = World(options, after)
        new.restore(states)
        assert equal(new.take(6 - step), expected[step:])
        if num_streams == 1:
            new.restore(states[-1])  # any rank's state is enough
            assert equal(new.take(6 - step), expected[step:])


def test_with_one_stream_all_ranks_have_the_same_state():
    world = World(options_of(1), 3)
    world.take(2)
    first, *others = world.states()
    assert all(state == first for state in others)


def test_with_many_streams_a_rank_reads_only_its_share():
    source = ListSource(shards_of(DOCUMENTS, 8))
    options = options_of(4, shuffle=False)
    stream = open_stream(options, rank=1, world_size=4, source=source, tokenizer=Numbers())
    take(stream, 2)
    assert {number for number, _ in source.opened} <= {1, 5}
    assert list(stream.get_state()["streams"]) == ["1"]


def test_the_state_of_one_rank_is_refused_if_others_are_needed():
    """Fault 32: an error if a state is not enough."""
    options = options_of(4)
    world = World(options, 4)
    world.take(1)
    with pytest.raises(InvalidState, match="streams 2 but this rank needs stream 0; pass"):
        World(options, 2).streams[0].set_state(world.states()[2])


def test_states_of_different_steps_are_refused():
    """Fault 35."""
    options = options_of(2)
    world = World(options, 2)
    early = world.states()
    world.take(1)
    late = world.states()
    with pytest.raises(InvalidState, match="of the steps 0, 1 but must be of the same one"):
        World(options, 1).restore([early[0], late[1]])
    with pytest.raises(InvalidState, match="the list has no state"):
        World(options, 1).restore([])


@pytest.mark.parametrize("nothing", [[], [[], []]], ids=["no documents", "no tokens"])
def test_an_epoch_with_only_empty_shards_for_a_stream_is_skipped(nothing):
    """Fault 25: shards are reassigned in every epoch, so the next one has other shards for it."""
    shards = [DOCUMENTS[:4], nothing, DOCUMENTS[4:8]]
    options = config(num_streams=2, shuffle=True)

    def opened():
        return open_stream(options, source=ListSource(shards), tokenizer=Numbers())

    with opened() as stream:
        expected, states = [], []
        for _ in range(40):
            states.append(json.dumps(stream.get_state()))
            expected += take(stream, 1)
        assert stream.stats()["epoch"] >= 8
        stream.ledger.check()
    for step in range(0, 37, 3):
        with opened() as stream:
            stream.set_state(json.loads(states[step]))
            assert same(take(stream, 3), expected[step : step + 3])


@pytest.mark.parametrize("nothing", [[], [[], []]], ids=["no documents", "no tokens"])
def test_a_source_of_empty_shards_is_an_error_for_every_stream(nothing):
    options = config(num_streams=2, shuffle=True)
    source = ListSource([nothing, nothing, nothing])
    with (
        open_stream(options, source=source, tokenizer=Numbers()) as stream,
        pytest.raises(InvalidOption, match=r"data\.repeat would search"),
    ):
        next(stream)


@pytest.mark.parametrize(
    ("rank", "world_size", "message"),
    [
        (0, 5, "world_size is 5 but must divide train.batch_size, which is 12"),
        (2, 2, "rank is 2 but must be below world_size, 2"),
        (-1, 2, "rank is -1 but must be an integer >= 0"),
        (0, 0, "world_size is 0 but must be an integer >= 1"),
    ],
)
def test_an_impossible_rank_is_refused(rank, world_size, message):
    with pytest.raises(InvalidOption, match=message):
        open_stream(options_of(1), rank=rank, world_size=world_size, tokenizer=Numbers())


def test_a_numpy_rank_keeps_the_same_columns_as_a_python_rank():
    """200 times 2 columns is more than eight bits hold."""
    options = StreamOptions(max_length=8, batch_size=512)
    given = StreamArguments(options=options, rank=np.uint8(200), world_size=np.uint16(256))
    assert type(given.rank) is type(given.world_size) is int
    rows = RankRows(options=options, rank=given.rank, world_size=given.world_size)
    assert rows == RankRows(options=options, rank=200, world_size=256)
    assert rows.columns == range(400, 402)
