"""Worker processes that die, and streams that are discarded: the same batches, or an error, never
a hang, and nothing left behind."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from quire.errors import InvalidOption, WorkerError
from quire.stream import open_stream
from quire.stream.encode import ProcessEncoder
from quire.text import as_tokenizer
from tests.stream.inputs import (
    LENGTHS,
    ListSource,
    Numbers,
    config,
    options_of,
    same,
    shards_of,
    take,
    unique_documents,
)

SHARDS = shards_of(unique_documents(LENGTHS * 3), 3)
DEADLY = str(SHARDS[1][9][0])


class Deadly(Numbers):
    """Kills its worker process on one text, once for every file that it can remove."""

    def __init__(self, lives: Path) -> None:
        self.lives = lives

    def __call__(self, texts):
        if any(DEADLY in text.split() for text in texts) and multiprocessing.parent_process():
            for life in self.lives.iterdir():
                life.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(texts)


def opened(tokenizer=None, **options):
    plain = config(**{"shuffle_buffer_size": 8, "num_workers": 2, **options})
    return open_stream(plain, source=ListSource(SHARDS), tokenizer=tokenizer or Numbers())


def within(seconds, function):
    """The function's result; a hang fails the test instead of blocking the run."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert results, f"it did not come back within {seconds} seconds"
    return results[0]


def wait_until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


@pytest.fixture(scope="module")
def expected():
    with opened(num_workers=0) as stream:
        return take(stream, 40)


@pytest.mark.slow
@pytest.mark.parametrize("prefetch", [0, 2])
def test_the_batches_are_the_same_when_a_worker_is_killed(expected, prefetch):
    """Fault 42: one worker dies while it waits or works, again and again."""
    with opened(grain_prefetch=prefetch) as stream:
        got = within(60, lambda: take(stream, 10))
        for _ in range(1 + prefetch // 2):
            victim = multiprocessing.active_children()[0]
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
            got += within(60, lambda: take(stream, 10))
        state = json.loads(json.dumps(stream.get_state()))
        assert same(got, expected[: len(got)])
        stream.ledger.check()
    with opened(num_workers=0) as stream:
        stream.set_state(state)
        assert same(take(stream, 40 - len(got)), expected[len(got) :])


def test_texts_that_killed_their_worker_are_encoded_again(expected, tmp_path):
    """Fault 42: workers die twice on a text, and another one finishes it."""
    for life in "ab":
        (tmp_path / life).touch()
    with opened(Deadly(tmp_path), num_workers=1) as stream:
        assert same(within(60, lambda: take(stream, 40)), expected)
    assert not list(tmp_path.iterdir())


def test_texts_that_kill_every_worker_are_an_error_and_the_state_stays_valid(expected, tmp_path):
    """Fault 42: the error says what to do, is repeated on retry, and loses nothing."""
    for life in range(100):
        (tmp_path / str(life)).touch()
    with opened(Deadly(tmp_path), grain_prefetch=2, num_workers=1) as stream:
        got = []

        def take_all():
            while True:
                got.append(next(stream))

        for _ in range(2):
            with pytest.raises(
                WorkerError, match=r"died 3 times.*last state, with fewer data\.num_workers"
            ):
                within_raising(60, take_all)
        state = json.loads(json.dumps(stream.get_state()))
    assert state["step"] == len(got)
    with opened(num_workers=0) as stream:
        stream.set_state(state)
        assert same(got + take(stream, 40 - len(got)), expected)


def test_all_processes_start_together_so_that_none_starts_while_another_dies():
    """Fault 42: a process that started while its pool broke was never terminated or joined."""
    before = set(multiprocessing.active_children())
    encoder = ProcessEncoder(as_tokenizer(Numbers()), options_of(add_eos=False, num_workers=3))
    try:
        assert encoder.submit(["11 12"])().tokens.tolist() == [11, 12]
        assert len(set(multiprocessing.active_children()) - before) == 3
    finally:
        encoder.close()


class LostTexts:
    """A pool that broke while texts were submitted: the caller gets an error, not a hang."""

    def __init__(self) -> None:
        self.taken = 0

    def submit(self, function, *arguments):
        self.taken += 1
        if self.taken > 1:
            raise BrokenProcessPool("a process died")
        return Future()

    def shutdown(self, **_):
        pass


def test_texts_submitted_while_their_pool_broke_are_encoded_again(monkeypatch):
    """Fault 42: never a hang."""
    monkeypatch.setattr("quire.stream.encode._PATIENCE", 0.01)
    encoder = ProcessEncoder(as_tokenizer(Numbers()), options_of(add_eos=False, num_workers=1))
    try:
        encoder._pool = LostTexts()
        encoded = encoder.submit(["11 12"])
        assert within(60, encoded).tokens.tolist() == [11, 12]
    finally:
        encoder.close()


def within_raising(seconds, function):
    """Like `within`, but re-raises the function's error here."""

    def outcome():
        try:
            return function(), None
        except Exception as error:
            return None, error

    result, error = within(seconds, outcome)
    if error is not None:
        raise error
    return result


def prefetching_threads():
    return [thread for thread in threading.enumerate() if thread.name == "quire-prefetch"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("taken", "prefetch", "workers"), [(0, 2, 0), (1, 2, 0), (5, 2, 0), (1, 0, 1), (5, 2, 1)]
)
def test_a_stream_that_is_dropped_without_close_leaves_no_thread_and_no_process(
    taken, prefetch, workers
):
    before = set(multiprocessing.active_children())
    stream = opened(grain_prefetch=prefetch, num_workers=workers)
    take(stream, taken)
    assert len(prefetching_threads()) == bool(taken and prefetch)
    assert len(set(multiprocessing.active_children()) - before) == workers
    del stream
    gc.collect()
    wait_until(lambda: not prefetching_threads())
    wait_until(lambda: set(multiprocessing.active_children()) <= before)


@pytest.mark.parametrize("repeat", [False, True])
def test_a_stream_that_is_dropped_before_its_end_or_its_error_was_taken_leaves_no_thread(repeat):
    documents = [[5, 6, 7]] if not repeat else [[]]  # an end, or an error, made ahead
    plain = config(repeat=repeat, grain_prefetch=2)
    stream = open_stream(plain, source=ListSource([documents]), tokenizer=Numbers())
    if repeat:
        with pytest.raises(InvalidOption):
            next(stream)
    else:
        next(stream)
    del stream
    gc.collect()
    wait_until(lambda: not prefetching_threads())


SCRIPT = """
from quire.stream import open_stream

if __name__ == "__main__":
    data = {"backend": "local_text", "local_text": "abc", "tokenizer": {"kind": "byte"}}
    data |= {"grain_prefetch": 2, "num_workers": 1}
    stream = open_stream({"data": data, "train": {"seq_len": 4, "batch_size": 1}})
    print(next(stream).input_ids.shape)
"""


def test_a_script_that_forgets_to_close_its_stream_ends_quietly(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "(1, 1, 4)\n", "")
