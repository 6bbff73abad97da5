"""Sources that fail at random and interrupts at every line do not change the packs."""

from __future__ import annotations

import itertools
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire.vision
from quire.errors import InvalidDocument
from tests.vision.failing import CONTINUED, PASSING, WAYS, FailsOnce, packed
from tests.vision.inputs import numbers, samples, through_bytes

ERRORS = st.lists(st.sampled_from(PASSING), min_size=1, max_size=2)
PACKAGE = Path(quire.vision.__file__).parent
NAMES = ("dataset", "iterator", "source", "counters")
STATEFUL = {str(PACKAGE / f"{name}.py") for name in NAMES}
"""The files that hold progress, which an interrupt could leave half updated."""


@st.composite
def sources(draw):
    """Samples, some of them bad, their true lengths, and the errors of some of them."""
    lengths = draw(st.lists(st.integers(1, 90), min_size=1, max_size=50))
    numbers_of = st.integers(0, len(lengths) - 1)
    items = samples(lengths)
    bad = draw(st.sets(numbers_of, max_size=4))
    for number in bad:
        items[number]["labels"] = []
    return items, lengths, bad, draw(st.dictionaries(numbers_of, ERRORS, max_size=6))


def outcome(continued, make):
    """Packs and telemetry, or the message of the error that ends the epoch."""
    try:
        seen, dataset = continued(make)
    except InvalidDocument as problem:
        return str(problem)
    telemetry = dataset.telemetry()
    telemetry.ledger.check()
    return seen, telemetry


@settings(max_examples=150, deadline=None)
@given(
    source=sources(),
    way=st.sampled_from(list(WAYS)),
    continued=st.sampled_from(list(CONTINUED.values())),
    buffer=st.integers(1, 12),
    ratio=st.sampled_from([0.3, 0.65, 1.0]),
    drop_last=st.booleans(),
    allowed=st.integers(0, 4),
    world_size=st.integers(1, 2),
)
def test_a_source_that_fails_at_random_yields_the_packs_of_one_that_does_not(
    source, way, continued, buffer, ratio, drop_last, allowed, world_size
):
    """Retried, or resumed through bytes: the same packs, each once, and balanced ledgers."""
    (items, lengths, bad, errors), (kind, known) = source, WAYS[way]
    options = {
        "packing_buffer": buffer,
        "packing_min_fill_ratio": ratio,
        "packing_drop_last": drop_last,
        "max_bad_records": max(allowed, len(bad)) if allowed else 0,
        "world_size": 1 if known else world_size,
    }
    expected = outcome(
        lambda make: (numbers(dataset := make()), dataset),
        lambda: packed(FailsOnce(items, {}), known, lengths, **options),
    )
    dataset = kind(items, errors)
    assert outcome(continued, lambda: packed(dataset, known, lengths, **options)) == expected


class Interrupt:
    """Raises KeyboardInterrupt once, at the n-th line that runs in these files."""

    def __init__(self, at):
        self.left = at

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename not in STATEFUL:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


@contextmanager
def interrupted(at):
    """A block interrupted at the n-th line; yields an object whose ``left`` is 0 afterwards."""
    before, trace = sys.gettrace(), Interrupt(at)
    sys.settrace(trace)
    try:
        yield trace
    except KeyboardInterrupt:
        assert trace.left == 0
    finally:
        sys.settrace(before)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["by number", "generated", "planned generated"])
@pytest.mark.parametrize("is_resumed", [False, True], ids=["retried", "resumed"])
def test_ctrl_c_at_any_line_loses_and_repeats_nothing(way, is_resumed):
    """A pack counts as delivered once `next` recorded it; only the caller knows if it arrived."""
    kind, known = WAYS[way]
    items = samples([50, 20, 60, 90, 10])
    items[1]["labels"] = []
    lengths = [item["length"] for item in items]

    def make(state=None):
        source = kind(items, {})
        made = packed(source, known, lengths, packing_buffer=2, max_bad_records=1)
        if state is not None:
            made.load_state_dict(through_bytes(state))
        return made

    whole = make()
    expected, end = numbers(whole), whole.telemetry()
    next(iter(whole))
    start = through_bytes(whole.state_dict())

    for at in itertools.count(1):
        dataset, packs, seen = make(start), None, expected[:1]
        with interrupted(at) as trace:
            packs = iter(dataset)
            for pack in packs:
                seen += numbers([pack])
        if packs is not None:
            had = dataset.telemetry().num_packs
            assert had - len(seen) in (0, 1)
            seen += expected[len(seen) : had]
        if is_resumed or packs is None:
            dataset = make(dataset.state_dict())
            packs = iter(dataset)
        seen += numbers(packs)
        assert seen == expected
        assert dataset.telemetry() == end
        if trace.left > 0:
            break
    assert at > 100
