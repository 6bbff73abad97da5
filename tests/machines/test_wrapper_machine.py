"""A machine that takes, saves and loads packs and begins epochs, checked against plain loops."""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from quire.vision import PackedVLDataset
from tests.vision.inputs import KINDS, naive_packs, numbers, samples

CAPACITY = 80


class WrapperMachine(RuleBasedStateMachine):
    """The oracle knows all packs of an epoch, which depend only on the samples."""

    @initialize(
        lengths=st.lists(st.integers(1, 110), min_size=1, max_size=50),
        kind=st.sampled_from(list(KINDS)),
        buffer=st.integers(1, 12),
        ratio=st.sampled_from([0.2, 0.65, 1.0]),
        drop_last=st.booleans(),
    )
    def begin(self, lengths, kind, buffer, ratio, drop_last):
        self.items, self.kind = samples(lengths), KINDS[kind]
        self.options = {
            "packing_length": CAPACITY,
            "packing_buffer": buffer,
            "packing_min_fill_ratio": ratio,
            "packing_drop_last": drop_last,
        }
        self.expected, self.dropped = naive_packs(lengths, CAPACITY, buffer, ratio, drop_last)
        self.saved = []
        self.states = {}
        """The state at every position where one was saved."""
        self.start_anew()

    def start_anew(self):
        self.dataset = PackedVLDataset(self.kind(self.items), **self.options)
        self.packs, self.done, self.epoch = None, 0, 0
        self.begun = self.ended = False

    @rule(count=st.integers(1, 6))
    def take(self, count):
        if self.packs is None:
            self.packs, self.begun = iter(self.dataset), True
        for _ in range(count):
            found = numbers([pack]) if (pack := next(self.packs, None)) is not None else []
            assert found == self.expected[self.done : self.done + 1]
            self.done += len(found)
            self.ended = not found

    @rule()
    def take_one_and_save(self):
        self.take(1)
        self.save()

    @rule()
    def save(self):
        text = json.dumps(self.dataset.state_dict())
        assert json.dumps(self.dataset.state_dict()) == text, "twice is the same"
        place = (self.epoch, self.done, self.begun, self.ended)
        assert self.states.setdefault(place, text) == text, "whatever way led here"
        self.saved.append((text, *place))

    @precondition(lambda self: self.saved)
    @rule(which=st.integers(0, 9), in_a_new_process=st.booleans(), names_the_epoch=st.booleans())
    def load(self, which, in_a_new_process, names_the_epoch):
        if in_a_new_process:
            self.start_anew()
        text, *place = self.saved[which % len(self.saved)]
        self.epoch, self.done, self.begun, self.ended = place
        self.dataset.load_state_dict(json.loads(text))
        if names_the_epoch:  # as trainers do
            self.dataset.set_epoch(self.epoch)
        assert self.dataset.epoch == self.epoch
        assert json.dumps(self.dataset.state_dict()) == text
        self.packs = None

    @rule()
    def begin_an_epoch(self):
        self.epoch += 1
        self.dataset.set_epoch(self.epoch)
        self.packs, self.done = None, 0
        self.begun = self.ended = False

    @precondition(lambda self: self.packs is not None)
    @rule()
    def count(self):
        told = self.dataset.telemetry()
        told.ledger.check()
        assert told.num_packs == self.done
        emitted = sum(len(pack) for pack in self.expected[: self.done])
        assert told.ledger.documents.emitted == emitted
        assert told.ledger.documents.dropped["drop_last"] in (0, len(self.dropped))


TestWrapperMachine = WrapperMachine.TestCase
TestWrapperMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
