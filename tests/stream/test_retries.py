"""Sources that fail: no document is lost or repeated, or there is an error; never a short epoch."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import CorruptFile, InvalidOption, SourceChanged, SourceError
from quire.stream import open_stream
from quire.stream.prefetch import Prefetcher
from quire.stream.reader import RetryingReader, ShardReader, Share
from quire.stream.row_stream import Mixture
from tests.stream.inputs import (
    LENGTHS,
    ListSource,
    Numbers,
    config,
    options_of,
    same,
    shards_of,
    take,
    text_of,
    unique_documents,
)

DOCUMENTS = unique_documents(LENGTHS)
SHARDS = shards_of(DOCUMENTS, 2)
PLACES = [(shard, record) for shard in range(2) for record in range(len(SHARDS[shard]))]


def read_all(reader):
    records = []
    while True:
        try:
            records += reader.read(4)
        except StopIteration:
            return records


def reader_of(source, waits=None, **more):
    sleep = (lambda seconds: None) if waits is None else waits.append
    options = options_of(shuffle=False, **more)
    return RetryingReader(ShardReader(source, Share(options=options)), options, sleep=sleep)


@settings(max_examples=150)
@given(
    failing=st.dictionaries(st.sampled_from(PLACES), st.integers(1, 3)),
    mark_every=st.integers(1, 9),
)
def test_failures_within_the_retry_limit_do_not_change_the_records(failing, mark_every):
    source = ListSource(SHARDS, fail_at=dict(failing))
    expected = read_all(reader_of(ListSource(SHARDS)))
    assert read_all(reader_of(source, max_retries=3, state_update_interval=mark_every)) == expected
    assert not any(source.fail_at.values())


def test_the_delay_doubles_and_restarts_after_every_document():
    """Fault 48: the back-off."""
    waits = []
    source = ListSource(SHARDS, fail_at={(0, 2): 3, (0, 3): 1, (1, 0): 2})
    read_all(reader_of(source, waits, max_retries=3, retry_delay_sec=0.5))
    assert waits == [0.5, 1.0, 2.0, 0.5, 0.5, 1.0]


def test_exhausted_retries_raise_with_the_cause_and_never_end_the_stream():
    """Fault 48: bounded, then an error, never a short epoch."""
    source = ListSource(SHARDS, fail_at={(0, 5): 4})
    reader = reader_of(source, max_retries=3)
    read = [reader.read(1)[0] for _ in range(5)]
    with pytest.raises(SourceError, match=r"failed 4 times in a row.*raise max_retries") as e:
        reader.read(1)
    assert isinstance(e.value.__cause__, ConnectionResetError)
    assert read + read_all(reader) == read_all(reader_of(ListSource(SHARDS)))


class Refused(OSError):
    """The error of an HTTP client, with the status of the response."""

    def __init__(self, status):
        super().__init__(f"HTTP {status}")
        self.status = status


@pytest.mark.parametrize(
    "error",
    [TimeoutError("timed out"), ConnectionResetError(104, "reset"), Refused(429), Refused(503)],
    ids=["time-out", "reset", "429", "503"],
)
def test_network_failures_never_shorten_an_epoch(error):
    """Fault 48: opening fails as well as reading, and the reader is dead afterwards."""

    class Remote(ListSource):
        times = 0

        def open(self, number, cursor):
            self.times += 1
            if self.times % 3 == 1:
                raise error
            return super().open(number, cursor)

    expected = read_all(reader_of(ListSource(SHARDS)))
    source = Remote(SHARDS, fail_at=dict.fromkeys(PLACES[::5], 1))
    assert read_all(reader_of(source, max_retries=3, state_update_interval=4)) == expected
    never = Remote(SHARDS)
    reader = reader_of(never, max_retries=0)
    with pytest.raises(SourceError, match="failed 1 times in a row") as caught:
        reader.read(1)
    assert caught.value.__cause__ is error


def test_without_retries_the_first_failure_is_an_error():
    waits = []
    reader = reader_of(ListSource(SHARDS, fail_at={(0, 0): 1}), waits, max_retries=0)
    with pytest.raises(SourceError, match="failed 1 times"):
        reader.read(1)
    assert waits == []


def test_a_source_that_changes_when_read_again_is_an_error():
    """Fault 49."""
    source = ListSource([list(SHARDS[0]), SHARDS[1]], fail_at={(0, 5): 1})
    reader = reader_of(source, state_update_interval=100)
    for _ in range(5):
        reader.read(1)
    source.shards[0][3] = [7, 7, 7]
    with pytest.raises(SourceChanged, match="were read again and they differ"):
        reader.read(1)


def test_a_source_that_became_shorter_is_an_error():
    """Fault 49."""
    source = ListSource([list(SHARDS[0])], fail_at={(0, 5): 1})
    reader = reader_of(source, state_update_interval=100)
    for _ in range(5):
        reader.read(1)
    del source.shards[0][2:]
    with pytest.raises(SourceChanged, match="5 documents were read again and there are 2"):
        reader.read(1)


class Broken(Numbers):
    """A tokenizer that fails: not an error of the source."""

    def __call__(self, texts):
        if any(text.startswith("13 ") for text in texts):
            raise OSError("the tokenizer is broken")
        return super().__call__(texts)


def test_only_errors_of_the_source_are_retried():
    options = config(max_retries=5, retry_delay_sec=600.0)
    source = ListSource([[[13, 14]]])
    with (
        open_stream(options, source=source, tokenizer=Broken()) as stream,
        pytest.raises(OSError, match="the tokenizer is broken"),
    ):
        next(stream)
    assert source.opened == [(0, None)]


@pytest.mark.parametrize("mode", ["sequential", "bin", "online"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_stream_over_a_flaky_source_is_the_stream_over_a_good_one(mode, shuffle, prefetch):
    options = config(
        packing_mode=mode,
        packing_buffer_docs=5,
        shuffle=shuffle,
        shuffle_buffer_size=6,
        state_update_interval=3,
        grain_prefetch=prefetch,
    )
    with open_stream(options, source=ListSource(SHARDS), tokenizer=Numbers()) as stream:
        expected = take(stream, 30)
    flaky = ListSource(SHARDS, fail_at={place: 1 + sum(place) % 3 for place in PLACES})
    with open_stream(options, source=flaky, tokenizer=Numbers()) as stream:
        assert same(take(stream, 30), expected)
        stream.ledger.check()


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_after_an_error_the_stream_and_its_state_continue_exactly(prefetch, shuffle):
    options = config(max_retries=1, shuffle=shuffle, shuffle_buffer_size=4, grain_prefetch=prefetch)
    with open_stream(options, source=ListSource(SHARDS), tokenizer=Numbers()) as stream:
        expected = take(stream, 30)
    flaky = ListSource(SHARDS, fail_at=dict.fromkeys(PLACES[3::7], 2))
    got, errors = [], 0
    with open_stream(options, source=flaky, tokenizer=Numbers()) as stream:
        while len(got) < 30:
            try:
                got.append(next(stream))
            except SourceError:
                errors += 1
                state = json.loads(json.dumps(stream.get_state()))
                assert state["step"] == len(got)
                other = open_stream(options, source=ListSource(SHARDS), tokenizer=Numbers())
                with other:
                    other.set_state(state)
                    assert same(take(other, 30 - len(got)), expected[len(got) :])
    assert same(got, expected)
    assert errors >= 2


@pytest.mark.parametrize(
    ("documents", "message"),
    [([], "finds no documents in the source"), ([[], []], "has no token")],
)
def test_an_empty_source_is_not_searched_forever(documents, message):
    source = ListSource([documents])
    with (
        open_stream(config(), source=source, tokenizer=Numbers()) as stream,
        pytest.raises(InvalidOption, match=message),
    ):
        next(stream)


def test_an_empty_source_that_does_not_repeat_is_an_empty_stream():
    for documents in ([], [[], []]):
        options = config(repeat=False)
        with open_stream(options, source=ListSource([documents]), tokenizer=Numbers()) as stream:
            with pytest.warns(UserWarning, match="the stream ended without a batch"):
                assert take(stream) == []
            assert stream.ledger.check().documents.dropped["empty"] == len(documents)


MANY = unique_documents([3, 7, 5] * 400)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_shard_raises_on_every_attempt_and_never_ends_the_stream(tmp_path, workers):
    """Fault 48: a reader that is dead after its error must not seem to be at its end."""
    lines = "".join(json.dumps({"text": text_of(document)}) + "\n" for document in MANY)
    whole = gzip.compress(lines.encode(), mtime=0)
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "b.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    files = [str(tmp_path / "*.jsonl"), str(tmp_path / "*.gz")]
    options = config(
        backend="files", files=files, shuffle=False, repeat=False, num_workers=workers, seq_len=64
    )
    errors = 0
    with open_stream(options, tokenizer=Numbers()) as stream:
        while errors < 3:  # StopIteration would end the test with an error
            try:
                next(stream)
            except CorruptFile:
                errors += 1
        assert stream.ledger.check().documents.input < 2 * len(MANY)


def test_thousands_of_retries_do_not_overflow_the_delay():
    waits = []
    reader = reader_of(
        ListSource([[[5]]], fail_at={(0, 0): 3000}), waits, max_retries=4000, retry_delay_sec=0.0
    )
    assert reader.read(1)[0] == "5"
    assert waits == [0.0] * 3000


class Interrupting(ListSource):
    """Ctrl-C while a record is read ends its generator."""

    interrupts = 1

    def open(self, number, cursor):
        shard = super().open(number, cursor)
        shard.records = self._interrupted(shard.records)
        return shard

    def _interrupted(self, records):
        for place, record in enumerate(records):
            if place == 4 and self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt
            yield record


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_interrupt_while_a_source_is_read_loses_nothing(shuffle):
    options = config(shuffle=shuffle, shuffle_buffer_size=6)
    with open_stream(options, source=ListSource(SHARDS), tokenizer=Numbers()) as stream:
        expected = take(stream, 20)
    with open_stream(options, source=Interrupting(SHARDS), tokenizer=Numbers()) as stream:
        got = []
        with pytest.raises(KeyboardInterrupt):
            while True:
                got.append(next(stream))
        assert same(got + take(stream, 20 - len(got)), expected)


@pytest.mark.parametrize(("prefetch", "stage"), [(0, Mixture), (2, Prefetcher)])
def test_an_interrupt_between_two_stages_loses_nothing(monkeypatch, prefetch, stage):
    """Output of a stage that the next one had not taken is computed again."""
    options = config(packing_mode="online", packing_buffer_docs=4, grain_prefetch=prefetch)
    with open_stream(options, source=ListSource(SHARDS), tokenizer=Numbers()) as stream:
        expected = take(stream, 20)
    with open_stream(options, source=ListSource(SHARDS), tokenizer=Numbers()) as stream:
        got = take(stream, 5)
        true_next = stage.next

        def interrupted(self):
            true_next(self)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(stage, "next", interrupted)
            next(stream)
        state = json.loads(json.dumps(stream.get_state()))
        assert state["step"] == 5
        got += take(stream, 15)
        assert same(got, expected)
    with open_stream(options, source=ListSource(SHARDS), tokenizer=Numbers()) as stream:
        stream.set_state(state)
        assert same(take(stream, 15), expected[5:])


class Forgetful(ListSource):
    """A source that sometimes fails to report its position."""

    asked = 0

    def open(self, number, cursor):
        shard = super().open(number, cursor)
        true_cursor = shard.cursor

        def cursor_or_error():
            self.asked += 1
            if self.asked % 3 == 0:
                raise TimeoutError("no answer")
            return true_cursor()

        shard.cursor = cursor_or_error
        return shard


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("max_retries", [0, 3])
def test_a_source_that_fails_to_give_its_cursor_loses_nothing(shuffle, max_retries):
    options = config(
        shuffle=shuffle, shuffle_buffer_size=4, state_update_interval=2, max_retries=max_retries
    )
    with open_stream(options, source=ListSource(SHARDS), tokenizer=Numbers()) as stream:
        expected = take(stream, 20)
    got = []
    with open_stream(options, source=Forgetful(SHARDS), tokenizer=Numbers()) as stream:
        while len(got) < 20:
            try:
                got.append(next(stream))
            except SourceError:
                assert not max_retries
    assert same(got, expected)
