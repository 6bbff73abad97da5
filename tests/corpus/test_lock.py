"""Workers of a dead writer are waited for, but not forever."""

from __future__ import annotations

import fcntl
import multiprocessing
import os

import pytest

from quire.corpus import lock
from quire.corpus.lock import close_inherited_locks, worker_lock, writer_lock
from quire.errors import OutputError


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "out" / ".quire"
    folder.mkdir(parents=True)
    return folder


def test_a_worker_that_does_not_end_is_an_error_and_keeps_its_lock(work, monkeypatch):
    monkeypatch.setattr(lock, "_SECONDS_TO_WAIT", 0.1)
    with worker_lock(work):
        for _ in range(2):  # the first attempt must not take the lock away from the second
            said = pytest.raises(
                OutputError, match=r"workers of an earlier run .* 0\.1 s .* resume"
            )
            with said, writer_lock(work, work.parent):
                pass
    with writer_lock(work, work.parent):
        pass
    assert not work.exists(), "nothing is left behind"


def test_a_fork_does_not_keep_the_lock_of_its_writer(tmp_path):
    """A writer that is killed must be replaceable at once, while its workers still end."""
    work = tmp_path / "work"
    fork = multiprocessing.get_context("fork")
    ready, done = fork.Event(), fork.Event()

    def live_on() -> None:
        close_inherited_locks()
        ready.set()
        done.wait(60)

    with writer_lock(work, tmp_path):
        child = fork.Process(target=live_on)
        child.start()
        assert ready.wait(60)
        with pytest.raises(OutputError, match="being written"), writer_lock(work, tmp_path):
            pass
        inherited = os.open(work / "writer", os.O_RDWR)
    try:
        fcntl.flock(inherited, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the file is removed, its lock free
    finally:
        done.set()
        child.join()
        os.close(inherited)
