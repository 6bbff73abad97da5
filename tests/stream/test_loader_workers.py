"""Any number of readers that take turns give the stream itself, and resume exactly."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import InvalidState, SourceError
from quire.stream import latest_state, open_stream
from quire.stream.workers import Position, Worker, WorkerBatches
from tests.stream.adapters import MODES, SHARDS, arguments
from tests.stream.inputs import ListSource, Numbers, config, key, take


def opener(source=None, **data):
    return lambda: open_stream(**arguments(source, **data))


def through_bytes(state):
    return json.loads(json.dumps(state).encode())


def piece_key(piece):
    batch, number = piece
    return number, key(batch)


def pieces_of(open_anew, pieces):
    with open_anew() as stream:
        return [(piece, key(batch)) for batch in take(stream) for piece in range(pieces)]


class Loader:
    """Reads from N readers in turn, as the loaders of torch and grain do."""

    def __init__(self, open_anew, num_workers, pieces=1, start=None, states=None):
        self.readers = [
            WorkerBatches(
                open_anew,
                worker=Worker(index=index, count=num_workers),
                pieces=pieces,
                start=start,
            )
            for index in range(num_workers)
        ]
        for reader, state in zip(self.readers, states or [], strict=False):
            reader.load_state_dict(state)
        self.turn = 0

    def take(self, count=None):
        got = []
        while self.readers and (count is None or len(got) < count):
            try:
                got.append(piece_key(next(self.readers[self.turn % len(self.readers)])))
            except StopIteration:
                break
            self.turn += 1
        return got

    def states(self):
        return through_bytes([reader.state_dict() for reader in self.readers])


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("num_workers", [1, 2, 3, 5])
def test_any_number_of_workers_deliver_every_batch_once_and_in_order(num_workers, pieces):
    open_anew = opener(packing_mode="online", grad_accum=pieces)
    loader = Loader(open_anew, num_workers, pieces)
    assert loader.take() == pieces_of(open_anew, pieces)
    for reader in loader.readers:  # all are over, and stay so
        with pytest.raises(StopIteration):
            next(reader)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("num_workers", "pieces"), [(1, 1), (1, 3), (2, 2), (3, 1), (2, 3)])
def test_workers_resume_exactly_after_any_piece(mode, num_workers, pieces):
    open_anew = opener(packing_mode=mode, grad_accum=pieces, batch_size=1, **MODES[mode])
    expected = pieces_of(open_anew, pieces)
    loader = Loader(open_anew, num_workers, pieces)
    for given_so_far in range(len(expected) + 1):
        states = loader.states()
        again = Loader(open_anew, num_workers, pieces, states=states)
        again.turn = given_so_far
        assert again.states() == states
        assert again.take(4) == expected[given_so_far : given_so_far + 4]
        loader.take(1)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 7)), min_size=1, max_size=5),
    st.integers(1, 3),
    st.sampled_from(sorted(MODES)),
)
def test_the_number_of_workers_may_change_at_every_resume(runs, pieces, mode):
    open_anew = opener(
        packing_mode=mode, grad_accum=pieces, batch_size=1, repeat=True, **MODES[mode]
    )
    got, state = [], None
    for num_workers, count in runs:
        loader = Loader(open_anew, num_workers, pieces, start=state)
        got += loader.take(count)
        state = latest_state(loader.states())
    with open_anew() as stream:
        expected = [(p, key(b)) for b in take(stream, len(got)) for p in range(pieces)]
    assert got == expected[: len(got)]


def test_workers_start_from_a_stream_s_own_state():
    open_anew = opener(packing_mode="bin")
    with open_anew() as stream:
        take(stream, 3)
        state = through_bytes(stream.get_state())
    expected = pieces_of(open_anew, 1)
    assert Loader(open_anew, 2, start=state).take() == expected[3:]


def test_workers_start_from_the_states_of_all_ranks():
    options = config(num_streams=2, shuffle=False, packing_mode="online", packing_buffer_docs=3)

    def rank(rank, world_size):
        return partial(
            open_stream,
            options,
            rank=rank,
            world_size=world_size,
            source=ListSource(SHARDS),
            tokenizer=Numbers(),
        )

    loaders = [Loader(rank(number, 2), 2) for number in range(2)]
    for loader in loaders:
        loader.take(3)
    states = [latest_state(loader.states()) for loader in loaders]
    with rank(0, 1)() as stream:
        expected = [(0, key(batch)) for batch in take(stream, 7)]
    assert Loader(rank(0, 1), 3, start=states).take(4) == expected[3:]
    loaders[1].take(1)
    uneven = [states[0], latest_state(loaders[1].states())]
    with pytest.raises(InvalidState, match="not of the same piece of the same batch"):
        Loader(rank(0, 1), 1, start=uneven)


def test_a_state_of_one_worker_is_refused_by_another():
    """Fault 33: grain would silently load two workers' states into three."""
    open_anew = opener()
    loader = Loader(open_anew, 2)
    loader.take(3)
    with pytest.raises(InvalidState, match=r"worker 0 of 2 but this is worker 0 of 3.*latest"):
        Loader(open_anew, 3, states=loader.states())


def test_states_from_before_the_first_batch_fit_any_number_of_workers():
    open_anew = opener()
    states = Loader(open_anew, 2).states()
    assert Loader(open_anew, 3, states=[*states, states[0]]).take() == pieces_of(open_anew, 1)


def test_microbatches_and_whole_batches_exchange_states_only_after_a_whole_batch():
    open_anew = opener(grad_accum=2)
    loader = Loader(open_anew, 1, pieces=2)
    loader.take(2)
    expected = pieces_of(open_anew, 1)
    assert Loader(open_anew, 1, start=latest_state(loader.states())).take() == expected[1:]
    loader.take(1)
    with pytest.raises(InvalidState, match=r"follows piece 1 of 2 .* have 1 piece here"):
        Loader(open_anew, 1, start=latest_state(loader.states()))


@pytest.mark.parametrize("field", ["part", "pieces", "first", "used", "stream", "checksum"])
def test_a_state_that_was_changed_is_refused(field):
    """Faults 27 and 28."""
    loader = Loader(opener(grad_accum=4), 2, pieces=4)
    loader.take(3)
    (state, _) = loader.states()
    other = {
        "part": [1, 2],
        "pieces": 5,
        "first": 1,
        "used": 2,
        "stream": {**state["stream"], "step": 1},
        "checksum": "0" * 16,
    }[field]
    assert state[field] != other
    with pytest.raises(InvalidState):
        Loader(opener(grad_accum=4), 2, pieces=4, states=[{**state, field: other}])
    without = {name: value for name, value in state.items() if name != field}
    with pytest.raises(InvalidState):
        Loader(opener(grad_accum=4), 2, pieces=4, states=[without])
    Loader(opener(grad_accum=4), 2, pieces=4, states=[state])  # as it was it is good


@pytest.mark.parametrize(
    "fields",
    [
        {"worker": Worker(index=2, count=2)},
        {"used": 3, "pieces": 3},
        {"pieces": 0},
        {"first": 99},
        {"stream": {"step": -1}},
        {"stream": {}},
    ],
)
def test_an_impossible_position_is_refused_even_with_a_valid_checksum(fields):
    state = Position(**{"stream": {"step": 4, "checksum": "x"}, **fields})
    with pytest.raises(InvalidState):
        Position.of(state.state_dict())


def test_an_object_without_a_worker_s_state_is_refused():
    with pytest.raises(InvalidState, match="there is no state of a quire stream"):
        latest_state({"worker_0": {"dataset_state": None}})
    with pytest.raises(InvalidState, match="2 batches older"):
        latest_state({"_steps_since_snapshot": 2})
    with pytest.raises(InvalidState, match="must be a dict"):
        Loader(opener(), 1, start=[7])
    with pytest.raises(InvalidState, match="states of 0 ranks"):
        Loader(opener(), 1, start=[])


def failing(count):
    return ListSource(SHARDS, fail_at={(0, 4): count})


def test_a_failed_worker_keeps_failing_because_the_others_continued():
    """Fault 42: a loader that continues after an error would deliver batches out of order."""
    open_anew = opener(failing(1), max_retries=0, shuffle=False, batch_size=1)
    reader = WorkerBatches(open_anew, worker=Worker(index=1, count=2))
    with pytest.raises(SourceError):
        list(reader)
    for _ in range(2):
        with pytest.raises(SourceError):
            next(reader)


def test_an_only_worker_may_retry_and_loses_nothing():
    plain = {"shuffle": False, "batch_size": 1}
    expected = pieces_of(opener(**plain), 1)
    reader = WorkerBatches(opener(failing(1), max_retries=0, **plain))
    got = []
    with pytest.raises(SourceError):
        while True:
            got.append(piece_key(next(reader)))
    state = through_bytes(reader.state_dict())
    assert got + [piece_key(piece) for piece in reader] == expected
    again = WorkerBatches(opener(**plain), start=state)
    assert got + [piece_key(piece) for piece in again] == expected
