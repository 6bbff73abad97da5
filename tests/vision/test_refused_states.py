"""States that are rejected, or whose samples cannot be read, do not disturb an iteration."""

from __future__ import annotations

import pytest

from quire.errors import InvalidState, SourceChanged
from tests.vision.failing import LENGTHS, WAYS, packed
from tests.vision.inputs import ByNumber, Reordered, numbers, samples, through_bytes


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("epoch", [0, 2])
def test_a_rejected_state_does_not_disturb_an_iteration(known, epoch):
    inner = Reordered(samples(LENGTHS))
    lengths = None if not known else [80] * 100
    if known:
        inner.items = samples([80] * 100)
    dataset = packed(inner, known, lengths)
    dataset.set_epoch(1)
    packs = iter(dataset)
    first = numbers([next(packs) for _ in range(5)])
    state, done = dataset.state_dict(), dataset.telemetry()
    foreign = packed(Reordered(inner.items), known, lengths, packing_buffer=7)
    foreign.set_epoch(epoch)
    with pytest.raises(InvalidState, match="packing_buffer"):
        dataset.load_state_dict(through_bytes(foreign.state_dict()))
    assert (dataset.state_dict(), dataset.telemetry()) == (state, done)
    assert (dataset.epoch, inner.epochs[-1]) == (1, 1)
    first += numbers([next(packs)])
    again = packed(Reordered(inner.items), known, lengths)
    again.load_state_dict(through_bytes(dataset.state_dict()))
    first += numbers(again)
    assert sorted(number for pack in first for number in pack) == list(range(100))


def test_a_rejected_state_keeps_one_that_was_loaded_before():
    dataset = packed(ByNumber(samples(LENGTHS)))
    whole = numbers(dataset)
    packs = iter(dataset)
    next(packs)
    dataset.load_state_dict(through_bytes(dataset.state_dict()))
    foreign = packed(ByNumber(samples(LENGTHS)), packing_buffer=7)
    with pytest.raises(InvalidState, match="packing_buffer"):
        dataset.load_state_dict(foreign.state_dict())
    assert numbers(dataset) == whole[1:]


def test_a_dataset_that_fails_to_set_the_epoch_of_a_state_does_not_disturb_an_iteration():
    class Closed(Reordered):
        def set_epoch(self, epoch):
            super().set_epoch(epoch)
            if epoch == 7:
                raise OSError(5, "epoch 7")

    dataset = packed(inner := Closed(samples(LENGTHS)))
    packs = iter(dataset)
    next(packs)
    state = dataset.state_dict()
    later = packed(Reordered(samples(LENGTHS)))
    later.set_epoch(7)
    with pytest.raises(OSError, match="epoch 7"):
        dataset.load_state_dict(later.state_dict())
    assert dataset.state_dict() == state
    assert (dataset.epoch, inner.epochs[-1]) == (0, 0)


def test_a_rejected_state_keeps_the_packs_to_skip():
    dataset = packed(samples(LENGTHS))
    whole = numbers(dataset)
    dataset.skip_packs(3)
    with pytest.raises(InvalidState, match="packing_buffer"):
        dataset.load_state_dict(packed(samples(LENGTHS), packing_buffer=7).state_dict())
    assert numbers(dataset) == whole[3:]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("way", ["by number", "in turn", "generated"])
def test_a_state_whose_samples_cannot_be_read_stays_loaded(way, error):
    kind, _ = WAYS[way]
    dataset = packed(kind(samples(LENGTHS), {}))
    whole = numbers(dataset)
    packs = iter(dataset)
    for _ in range(5):
        next(packs)
    state = through_bytes(dataset.state_dict())
    held = state["place"]["ready"][0][2]
    again = packed(kind(samples(LENGTHS), {held: [error, error]}))
    again.load_state_dict(state)
    for _ in range(2):
        with pytest.raises(error, match=f"sample {held}"):
            iter(again)
        assert again.state_dict() == state
    assert numbers(again) == whole[5:]


def test_a_state_of_changed_samples_stays_loaded_until_they_are_restored():
    source = ByNumber(samples(LENGTHS))
    dataset = packed(source)
    whole = numbers(dataset)
    packs = iter(dataset)
    for _ in range(5):
        next(packs)
    again = packed(source)
    again.load_state_dict(through_bytes(dataset.state_dict()))
    kept, source.items = source.items, samples([80] * 100)
    for _ in range(2):
        with pytest.raises(SourceChanged, match="measures"):
            iter(again)
    source.items = kept
    assert numbers(again) == whole[5:]
