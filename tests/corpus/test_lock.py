"""Workers of a writer that is no more are waited for, but not for ever."""

from __future__ import annotations

import pytest

from quire.corpus import lock
from quire.corpus.lock import worker_lock, writer_lock
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
