"""A machine that takes, saves, loads and rescales a loader, checked against a single rank."""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.machines.resumable import packed_dataset

GLOBAL_BATCH = 48
EPOCHS = 3


class LoaderMachine(RuleBasedStateMachine):
    """The oracle is the rows of every step of some epochs, each row at most once in an epoch."""

    @initialize(seed=st.integers(0, 99), shuffle=st.booleans(), balance=st.booleans())
    def begin(self, seed, shuffle, balance):
        self.options = {"seed": seed, "shuffle": shuffle}
        self.balance = balance
        alone = packed_dataset().loader(GLOBAL_BATCH, **self.options)
        steps = range(alone.steps_per_epoch)
        self.expected = [alone.rows(epoch, s).tolist() for epoch in range(EPOCHS) for s in steps]
        for epoch in range(EPOCHS):
            of_epoch = self.expected[epoch * len(steps) : (epoch + 1) * len(steps)]
            rows = [row for step in of_epoch for row in step]
            assert len(set(rows)) == len(rows) == len(packed_dataset()) - alone.num_left_over
        self.saved, self.step = None, 0
        self.open(1)

    def open(self, world):
        self.ranks = [
            packed_dataset().loader(
                GLOBAL_BATCH, rank=rank, world_size=world, balance=self.balance, **self.options
            )
            for rank in range(world)
        ]
        self.batches = [None] * world

    def next_of(self, rank):
        if self.batches[rank] is None:
            self.batches[rank] = iter(self.ranks[rank])
        batch = next(self.batches[rank], None)
        if batch is None:  # the epoch is over: iterating again goes on with the next
            self.batches[rank] = iter(self.ranks[rank])
            batch = next(self.batches[rank])
        return [row["input_ids"].tolist() for row in batch]

    @rule(count=st.integers(1, 4))
    def take(self, count):
        for _ in range(min(count, len(self.expected) - self.step)):
            found = [row for rank in range(len(self.ranks)) for row in self.next_of(rank)]
            dataset = packed_dataset()
            expected = [dataset[row]["input_ids"].tolist() for row in self.expected[self.step]]
            if self.balance:
                found, expected = sorted(found), sorted(expected)
            assert found == expected
            self.step += 1

    @rule()
    def save(self):
        texts = {json.dumps(rank.state_dict()) for rank in self.ranks}
        (text,) = texts  # the same on every rank
        self.saved = text, self.step

    @precondition(lambda self: self.saved is not None)
    @rule(world=st.none() | st.sampled_from([1, 2, 3, 4, 6, 8]))
    def load(self, world):
        """In this world or, if its processes are gone, in one of another size."""
        if world is not None:
            self.open(world)
        text, self.step = self.saved
        for number, rank in enumerate(self.ranks):
            rank.load_state_dict(json.loads(text))
            self.batches[number] = None


TestLoaderMachine = LoaderMachine.TestCase
TestLoaderMachine.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
