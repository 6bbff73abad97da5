"""The shuffle: every record once per epoch, within its window, in that window's order."""

from __future__ import annotations

from quire.stream.reader import RetryingReader, ShardReader, Share
from quire.stream.shuffle import ShuffleWindows
from tests.stream.inputs import ListSource, options_of

RECORDS = [[number] for number in range(10, 40)]


def windows_of(seed=0, size=10, repeat=False):
    """Shuffle windows of a source of 30 records; slices are whole windows here."""
    options = options_of(seed=seed, shuffle_buffer_size=size, repeat=repeat)
    share = Share(options=options)
    shards = ShardReader(ListSource([RECORDS]), share)
    return ShuffleWindows(RetryingReader(shards, options), share)


def orders(windows, count):
    return [[int(text) for text in windows.next().records] for _ in range(count)]


def test_a_record_stays_in_its_shuffle_window():
    first, second, third = orders(windows_of(), 3)
    assert sorted(first) == list(range(10, 20))
    assert sorted(second) == list(range(20, 30))
    assert sorted(third) == list(range(30, 40))


def test_every_window_epoch_and_seed_has_a_different_order():
    relative = [
        tuple(value % 10 for value in order)
        for seed in (0, 1)
        for order in orders(windows_of(seed=seed, repeat=True), 6)
    ]
    assert len(set(relative)) == 12
    assert tuple(range(10)) not in relative


def test_the_last_window_of_an_epoch_may_be_short():
    first, second, again = orders(windows_of(size=20, repeat=True), 3)
    assert (len(first), len(second), len(again)) == (20, 10, 20)


def test_without_repeat_a_finished_stream_stays_finished():
    windows = windows_of(size=40)
    assert len(windows.next().records) == 30
    for _ in range(3):
        try:
            windows.next()
        except StopIteration:
            continue
        raise AssertionError("there is a slice after the end")
