"""A machine that takes, saves, loads, rescales and breaks a stream, against a naive oracle.

Every token is unique, so the oracle needs no packer: it knows which batches the undisturbed stream
gives, which was checked by hand to hold every document once an epoch.
"""

from __future__ import annotations

import json

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from quire.config import load_options
from quire.errors import SourceError
from quire.stream import StreamConfig, open_stream
from tests.stream.inputs import LENGTHS, ListSource, Numbers, config, shards_of, unique_documents

DOCUMENTS = unique_documents(LENGTHS)
MAX_STEPS = 60
UNDISTURBED = {}
"""The batches of an undisturbed stream, by options."""
PLACES = [(shard, record) for shard in range(3) for record in range(7)]


def naive_windows(documents, size):
    """The expected result of a sequential packer: all tokens end to end, cut every ``size``."""
    flat = [token for document in documents if document for token in (1, *document, 2)]
    return [flat[place : place + size] for place in range(0, len(flat) - size + 1, size)]


def test_the_oracle_is_correct_in_stream_order():
    plain = config(seq_len=6, batch_size=1, shuffle=False)
    expected = naive_windows(DOCUMENTS * 3, 7)
    source = ListSource([DOCUMENTS])
    with open_stream(plain, source=source, tokenizer=Numbers()) as stream:
        for window in expected[:60]:
            batch = next(stream)
            assert batch.input_ids[0, 0].tolist() == window[:-1]
            learnt = batch.labels[0, 0] != -100
            assert batch.labels[0, 0][learnt].tolist() == np.array(window[1:])[learnt].tolist()
            assert [window[i] for i in np.flatnonzero(~learnt)] == [2] * int((~learnt).sum())


class StreamMachine(RuleBasedStateMachine):
    """All ranks of a world, one step at a time, with every fault that a run can have."""

    @initialize(
        mode=st.sampled_from(["sequential", "bin", "online"]),
        num_streams=st.sampled_from([1, 2, 4]),
        shuffle=st.booleans(),
        buffer=st.integers(1, 9),
    )
    def begin(self, mode, num_streams, shuffle, buffer):
        self.data = {
            "packing_mode": mode,
            "packing_buffer_docs": buffer,
            "num_streams": num_streams,
            "shuffle": shuffle,
            "shuffle_buffer_size": buffer,
        }
        self.expected = self.undisturbed()
        self.step, self.world_size, self.prefetch, self.interval = 0, 1, 0, 2
        self.saved = None
        self.streams = []
        self.open()

    def options(self, prefetch=0, interval=2):
        more = {"grain_prefetch": prefetch, "state_update_interval": interval, "max_retries": 2}
        return load_options(StreamConfig, config(seq_len=6, batch_size=4, **self.data, **more))

    def undisturbed(self):
        key = json.dumps(self.data)
        if key not in UNDISTURBED:
            source = ListSource(shards_of(DOCUMENTS, 3))
            with open_stream(self.options(), source=source, tokenizer=Numbers()) as stream:
                UNDISTURBED[key] = [next(stream).to_dict() for _ in range(MAX_STEPS)]
        return UNDISTURBED[key]

    def open(self):
        self.close()
        self.source = ListSource(shards_of(DOCUMENTS, 3))
        self.streams = [
            open_stream(
                self.options(self.prefetch, self.interval),
                rank=rank,
                world_size=self.world_size,
                source=self.source,
                tokenizer=Numbers(),
            )
            for rank in range(self.world_size)
        ]

    def close(self):
        for stream in self.streams:
            stream.close()

    def next_of(self, stream):
        while True:
            try:
                return next(stream).to_dict()
            except SourceError:
                continue  # the caller's own retry

    def set_state(self, stream, state):
        while True:
            try:
                return stream.set_state(state)
            except SourceError:
                continue

    @rule()
    def load_in_vain(self):
        """A restore that fails in the middle of the source leaves the stream at its position."""
        if self.saved is None:
            return
        here = json.dumps([stream.get_state() for stream in self.streams])
        for stream in self.streams:
            self.source.fail_at = dict.fromkeys(PLACES[::2], 3)
            try:
                stream.set_state(json.loads(self.saved[0]))
            except SourceError:
                self.source.fail_at = {}
            else:  # nothing that failed was read again: come back
                self.source.fail_at = {}
                stream.set_state(json.loads(here))

    @rule(count=st.integers(1, 4))
    def take(self, count):
        for _ in range(min(count, MAX_STEPS - self.step)):
            parts = [self.next_of(stream) for stream in self.streams]
            for name, array in self.expected[self.step].items():
                whole = np.concatenate([part[name] for part in parts], axis=1)
                assert whole.dtype == array.dtype
                assert np.array_equal(whole, array), (self.step, name)
            self.step += 1

    @rule()
    def save(self):
        states = [stream.get_state() for stream in self.streams]
        self.saved = json.dumps(states), self.step

    @rule()
    def load(self):
        if self.saved is not None:
            text, self.step = self.saved
            for stream in self.streams:
                self.set_state(stream, json.loads(text))

    @rule(
        world_size=st.sampled_from([1, 2, 4]),
        prefetch=st.sampled_from([0, 2]),
        interval=st.integers(1, 5),
    )
    def start_anew(self, world_size, prefetch, interval):
        """The process is gone; another world continues from the last saved state."""
        self.world_size, self.prefetch, self.interval = world_size, prefetch, interval
        self.open()
        if self.saved is None:
            self.step = 0
        else:
            self.load()

    @rule(failing=st.dictionaries(st.sampled_from(PLACES), st.integers(1, 5), max_size=4))
    def fail(self, failing):
        self.source.fail_at = dict(failing)

    @rule()
    def count(self):
        for stream in self.streams:
            stream.ledger.check()
            assert stream.stats()["step"] == self.step

    def teardown(self):
        if hasattr(self, "streams"):
            self.close()


TestStreamMachine = StreamMachine.TestCase
TestStreamMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
