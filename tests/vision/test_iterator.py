"""After an error or interrupt, a caller that continues receives every sample once."""

from __future__ import annotations

import weakref
from typing import ClassVar

import pytest

from quire.errors import InvalidDocument, SourceChanged
from quire.vision.grouping import PackBuffer
from tests.vision.failing import CONTINUED, LENGTHS, WAYS, FailsOnce, Generated, packed, retried
from tests.vision.inputs import ByNumber, numbers, samples, through_bytes


def with_bad(*positions):
    """Samples of which some are malformed, with correct known lengths."""
    items = samples(LENGTHS)
    for position in positions:
        items[position]["labels"] = [1]
    return items


@pytest.mark.parametrize("continued", list(CONTINUED.values()), ids=list(CONTINUED))
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("way", list(WAYS))
def test_an_error_at_any_sample_neither_loses_nor_repeats_one(way, error, continued):
    """Fault 48, and Ctrl-C: while a buffer is filled, or while a pack is read."""
    kind, known = WAYS[way]
    whole = packed(FailsOnce(samples(LENGTHS), {}), known)
    expected, end = numbers(whole), whole.telemetry()
    for position in (0, 15, 16, 40, 99):
        source = kind(samples(LENGTHS), {position: [error, error]})
        seen, dataset = continued(lambda source=source: packed(source, known))
        assert seen == expected
        assert dataset.telemetry() == end


@pytest.mark.parametrize("way", list(WAYS))
def test_an_error_does_not_change_the_counts(way):
    kind, known = WAYS[way]
    dataset = packed(kind(samples(LENGTHS), {40: [OSError, OSError]}), known)
    packs = iter(dataset)
    with pytest.raises(OSError, match="sample 40"):
        list(packs)
    state, done = dataset.state_dict(), dataset.telemetry()
    with pytest.raises(OSError, match="sample 40"):
        next(packs)
    assert (dataset.state_dict(), dataset.telemetry()) == (state, done)


@pytest.mark.parametrize("way", list(WAYS))
def test_a_bad_sample_over_the_budget_raises_on_every_retry_and_loses_no_other(way):
    kind, known = WAYS[way]
    allowed = packed(kind(with_bad(40), {}), known, max_bad_records=1)
    expected, end = numbers(allowed), allowed.telemetry()
    dataset, seen = packed(kind(with_bad(40), {}), known), []
    packs = iter(dataset)
    for _ in range(3):
        with pytest.raises(InvalidDocument, match=r"sample 40 has \d+ input_ids and 1 labels;"):
            while True:
                seen += numbers([next(packs)])
    again = packed(kind(with_bad(40), {}), known, max_bad_records=1)
    again.load_state_dict(through_bytes(dataset.state_dict()))
    assert seen + numbers(again) == expected
    assert again.telemetry() == end


@pytest.mark.parametrize("continued", list(CONTINUED.values()), ids=list(CONTINUED))
@pytest.mark.parametrize("way", list(WAYS))
def test_a_bad_sample_before_an_error_in_the_same_pack_is_counted_once(way, continued):
    kind, known = WAYS[way]
    first, second, *_ = next(pack for pack in numbers(packed(samples(LENGTHS))) if len(pack) > 2)
    items = with_bad(first)
    whole = packed(FailsOnce(items, {}), known, max_bad_records=1)
    expected, end = numbers(whole), whole.telemetry()
    source = kind(items, {second: [OSError]})
    seen, dataset = continued(lambda: packed(source, known, max_bad_records=1))
    assert seen == expected
    assert dataset.telemetry() == end


@pytest.mark.parametrize("continued", list(CONTINUED.values()), ids=list(CONTINUED))
@pytest.mark.parametrize("method", ["take_groups", "finish"])
def test_ctrl_c_while_a_full_buffer_is_grouped_loses_nothing(method, continued, monkeypatch):
    expected = numbers(packed(ByNumber(samples(LENGTHS))))
    group, interrupts = getattr(PackBuffer, method), [1, 0, 1, 0, 0, 1]

    def interrupted(buffer):
        groups = group(buffer)
        if interrupts and interrupts.pop(0):
            raise KeyboardInterrupt
        return groups

    monkeypatch.setattr(PackBuffer, method, interrupted)
    source = ByNumber(samples(LENGTHS))
    assert continued(lambda: packed(source))[0] == expected


def test_samples_before_an_error_are_not_read_twice():
    """By number, what is in the buffer is kept."""
    source = FailsOnce(samples(LENGTHS), {40: [OSError], 41: [OSError]})
    seen, _ = retried(lambda: packed(source))
    assert sorted(source.reads) == list(range(100))
    assert sorted(number for pack in seen for number in pack) == list(range(100))


@pytest.mark.parametrize("known", [False, True])
def test_a_source_that_is_shorter_when_read_again_has_changed(known):
    class Shrinking(Generated):
        def __iter__(self):
            self.inner.items = self.inner.items[: 100 if self.inner.errors[40] else 30]
            return super().__iter__()

    packs = iter(packed(Shrinking(samples(LENGTHS), {40: [OSError]}), known))
    with pytest.raises(OSError, match="sample 40"):
        list(packs)
    for _ in range(2):
        with pytest.raises(SourceChanged, match=r"ends at sample 30 .* but had 40 .* before"):
            next(packs)


def test_packs_to_skip_are_skipped_after_a_failed_start():
    class Closed:
        broken = True

        def __iter__(self):
            if self.broken:
                self.broken = False
                raise OSError(5, "closed")
            return iter(samples(LENGTHS))

    dataset = packed(Closed(), known=True)
    dataset.skip_packs(3)
    seen, _ = retried(lambda: dataset)
    assert seen == numbers(packed(samples(LENGTHS)))[3:]


@pytest.mark.parametrize("known", [False, True])
def test_a_source_that_does_not_fail_is_opened_once(known):
    class Counted(Generated):
        num_opened = 0

        def __iter__(self):
            self.num_opened += 1
            return super().__iter__()

    source = Counted(samples(LENGTHS), {})
    list(packed(source, known))
    assert source.num_opened == 1


@pytest.mark.parametrize("known", [False, True])
def test_delivered_samples_are_released(known):
    """Fault 45: what is kept for a retry is a buffer and one pack, not an epoch."""

    class Sample(dict):
        """Supports weak references."""

    class Made:
        refs: ClassVar = []

        def __iter__(self):
            for number, length in enumerate(LENGTHS):
                made = Sample(length=length, number=number)
                self.refs.append(weakref.ref(made))
                yield made

    most = 0
    for _pack in packed(Made(), known):
        most = max(most, sum(ref() is not None for ref in Made.refs))
    assert most <= 40
