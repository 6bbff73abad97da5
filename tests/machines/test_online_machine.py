"""A machine that feeds, saves, loads and flushes an online packer, checked against plain rules."""

from __future__ import annotations

import json
from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quire.plan import OnlinePacker


class OnlineMachine(RuleBasedStateMachine):
    """The oracle keeps waiting documents in a queue, and checks every row."""

    @initialize(
        max_length=st.sampled_from([4, 7, 16, 33]),
        buffer=st.integers(1, 8),
        most=st.none() | st.integers(1, 4),
        align=st.sampled_from([1, 1, 2, 4]),
    )
    def begin(self, max_length, buffer, most, align):
        self.options = {"buffer_size": buffer, "max_documents_per_row": most, "align": align}
        self.max_length, self.align = max_length, align
        self.room = max_length // align * align
        self.limit = min(self.room // align, most or self.room)
        self.packer = OnlinePacker(max_length, **self.options)
        self.waiting = deque()
        self.calls = []
        """Every call of the packer, and its result."""
        self.num_added = 0
        self.saved = None

    def space(self, length):
        return -(-length // self.align) * self.align

    def leave(self, rows, *, in_turn=True):
        for row in rows:
            lengths = dict(self.waiting)
            assert row == [key for key in lengths if key in row], "in the order of their coming"
            assert sum(self.space(lengths[key]) for key in row) <= self.max_length
            assert 1 <= len(row) <= self.limit
            assert not in_turn or self.waiting[0][0] in row, "the oldest leaves"
            self.waiting = deque(item for item in self.waiting if item[0] not in row)

    @rule(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6))
    def add(self, lengths):
        for wanted in lengths:
            length = min(wanted, self.room)
            key = self.num_added if self.num_added % 3 else f"document {self.num_added}"
            self.num_added += 1
            self.waiting.append((key, length))
            rows = self.packer.add(key, length)
            self.leave(rows)
            self.calls.append((key, length, rows))

    @rule()
    def flush(self):
        rows = self.packer.flush()
        self.leave(rows, in_turn=False)
        assert not self.waiting, "everything leaves"
        self.calls.append((None, 0, rows))

    @rule()
    def save(self):
        text = json.dumps(self.packer.state_dict())
        self.saved = text, list(self.waiting), list(self.calls), self.num_added

    @precondition(lambda self: self.saved is not None)
    @rule()
    def load(self):
        text, waiting, calls, self.num_added = self.saved
        self.packer = OnlinePacker(self.max_length, **self.options)
        self.packer.load_state_dict(json.loads(text))
        self.waiting, self.calls = deque(waiting), list(calls)
        assert json.dumps(self.packer.state_dict()) == text

    @invariant()
    def nothing_waits_that_should_have_left(self):
        if not hasattr(self, "packer"):
            return
        assert self.packer.num_waiting == len(self.waiting)
        places = sum(self.space(length) for _, length in self.waiting)
        full = places >= 2 * self.room or len(self.waiting) >= 2 * self.limit
        assert not (full and len(self.waiting) >= self.options["buffer_size"])

    def teardown(self):
        """A packer that was never saved or loaded returns the same rows for the same calls."""
        if not hasattr(self, "packer"):
            return
        other = OnlinePacker(self.max_length, **self.options)
        for key, length, rows in self.calls:
            assert (other.flush() if key is None else other.add(key, length)) == rows


TestOnlineMachine = OnlineMachine.TestCase
TestOnlineMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
