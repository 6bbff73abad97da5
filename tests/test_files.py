"""Folders and files that a crash leaves whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import stat
from pathlib import Path

import pytest

from quire.files import leftovers_swept, make_folder, sha256_of, whole_file


def test_39_a_new_folder_and_those_above_it_are_synced(tmp_path, monkeypatch):
    """Fault 39: a folder whose name was not synced is lost when the power fails."""
    synced = []
    real = os.open

    def note(path, flags, *more):
        synced.append(path)
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", note)
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert synced == [tmp_path / "a", tmp_path]
    make_folder(tmp_path / "a" / "b")
    assert synced == [tmp_path / "a", tmp_path], "what stands is not synced again"


def test_37_a_file_appears_whole_or_not_at_all(tmp_path):
    """Fault 37: an error inside the block leaves the old file and no temporary one."""
    (tmp_path / "a").write_text("old")
    with pytest.raises(ValueError, match="broken"), whole_file(tmp_path / "a") as temporary:
        temporary.write_text("ne")
        raise ValueError("broken")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_37_a_file_is_synced_before_it_is_renamed_and_its_folder_after(tmp_path, monkeypatch):
    """Fault 37: otherwise the name may survive a crash without the content."""
    done = []
    real_sync, real_replace = os.fsync, os.replace

    def sync(descriptor):
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real_sync(descriptor)

    def replace(source, target):
        done.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    with whole_file(str(tmp_path / "a")) as temporary:
        temporary.write_text("new")
    assert done == ["file", "rename", "folder"]
    assert (tmp_path / "a").read_text() == "new"


def descriptors() -> set[Path]:
    return set(Path("/dev/fd").iterdir())


def test_a_sync_that_fails_is_an_error_and_leaves_no_descriptor_open(tmp_path, monkeypatch):
    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    before = descriptors()
    with pytest.raises(OSError, match="Input/output"), whole_file(tmp_path / "a") as temporary:
        temporary.write_text("new")
    assert descriptors() == before
    assert not list(tmp_path.iterdir())


# What the dead left

LEFT = ".a[1].json.0123456789ab.tmp"
OTHERS = [".a1.json.0123456789ab.tmp", ".b.json.0123456789ab.tmp", "a[1].json", "a[1].json.tmp"]


@pytest.fixture
def crowded(tmp_path):
    for name in (LEFT, *OTHERS):
        (tmp_path / name).write_text("half")
    return tmp_path


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_37_only_leftovers_of_dead_writers_of_this_path_are_removed(crowded):
    """Fault 37."""
    before = descriptors()
    with leftovers_swept(str(crowded / "a[1].json")):
        assert names(crowded) == OTHERS
    assert descriptors() == before


def test_44_files_of_running_writers_are_kept(crowded):
    """Fault 44: a process in such a block holds a lock, which others may share."""
    with leftovers_swept(crowded / "a[1].json"):
        (crowded / LEFT).write_text("half")
        with leftovers_swept(crowded / "a[1].json"):
            assert names(crowded) == sorted([LEFT, *OTHERS])
        other = os.open(crowded, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.close(other)
    with leftovers_swept(crowded / "a[1].json"):
        assert names(crowded) == OTHERS


def test_leftovers_are_kept_where_no_folder_can_be_locked(crowded, monkeypatch):
    def fail(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with leftovers_swept(crowded / "a[1].json"):
        assert names(crowded) == sorted([LEFT, *OTHERS])


def test_an_error_in_the_block_is_raised_and_the_lock_is_released(crowded):
    before = descriptors()
    with pytest.raises(ValueError, match="broken"), leftovers_swept(crowded / "a[1].json"):
        raise ValueError("broken")
    assert descriptors() == before


class Counting:
    """A file that records the size of every read."""

    def __init__(self, data):
        self.data, self.asked = data, []

    def open(self, mode):
        assert mode == "rb"
        file = io.BytesIO(self.data)
        real = file.read
        file.read = lambda size: self.asked.append(size) or real(size)
        return contextlib.closing(file)


def test_a_large_file_is_hashed_block_by_block_and_a_missing_one_has_no_hash(tmp_path):
    file = Counting(b"quire" * 1_000_000)
    assert sha256_of(file) == hashlib.sha256(file.data).hexdigest()
    assert file.asked == [1 << 22] * 3
    (tmp_path / "a").write_bytes(b"quire")
    assert sha256_of(tmp_path / "a") == hashlib.sha256(b"quire").hexdigest()
    assert sha256_of(tmp_path / "none") is None
