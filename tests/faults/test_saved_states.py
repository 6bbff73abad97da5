"""A fault while a state is saved leaves the old state or the new one, and no other files."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from quire.errors import OutputError
from quire.stream import load_state, save_state
from quire.stream.state import sealed


def state(step: int) -> dict:
    return sealed({"step": step, "options": {}, "tokenizer": {}, "streams": []})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_state(state(1), tmp_path / "state.json")
    return tmp_path / "state.json"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_39_a_state_that_cannot_be_saved_is_an_error_and_the_old_one_is_kept(
    file, monkeypatch, call
):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(
        OutputError, match=r"state\.json: No space left on device; an earlier state"
    ):
        save_state(state(2), file)
    assert load_state(file)["step"] == 1
    assert names(file.parent) == ["state.json"]


def test_40_a_state_for_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(OutputError, match="No such file or directory"):
        save_state(state(1), tmp_path / "absent" / "state.json")


def test_37_temporary_files_of_a_killed_save_are_removed_by_the_next(file):
    for name in (".state.json.0123456789ab.tmp", ".other.json.0123456789ab.tmp"):
        (file.parent / name).write_text("half")
    save_state(state(2), file)
    assert names(file.parent) == [".other.json.0123456789ab.tmp", "state.json"]


def test_44_temporary_files_of_a_running_save_are_kept(file):
    theirs = file.parent / ".state.json.0123456789ab.tmp"
    theirs.write_text("half")
    descriptor = os.open(file.parent, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    save_state(state(2), file)
    assert theirs.exists()
    assert load_state(file)["step"] == 2
    os.close(descriptor)
    save_state(state(3), file)
    assert not theirs.exists()
