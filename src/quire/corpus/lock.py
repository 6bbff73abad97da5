"""Locks: one writer per output. The kernel releases the lock of a process that dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quire.errors import OutputError
from quire.storage import AnyPath, RemotePath

_SECONDS_TO_WAIT = 300.0
"""For workers of a writer that died."""

_held: set[int] = set()
"""Descriptors of the writer's locks that this process holds."""


@contextmanager
def writer_lock(folder: AnyPath, out: AnyPath) -> Iterator[None]:
    """Hold the lock of the output; afterwards the folder is removed if it is empty.

    This waits for the workers of a killed writer: they notice its death at once, on a cluster
    within about a minute, and must not leave files that nobody removes. A store has no locks.
    """
    if isinstance(folder, RemotePath):
        yield
        return
    descriptor = _locked(folder / "writer", out)
    _held.add(descriptor)
    try:
        _wait_for_workers(folder / "workers", out)
        try:
            yield
        finally:
            for name in ("workers", "writer"):
                (folder / name).unlink(missing_ok=True)
            _remove_if_empty(folder)
    finally:  # if workers still hold a lock, the files stay
        _held.discard(descriptor)
        os.close(descriptor)


def close_inherited_locks() -> None:
    """Leave the locks of the writer to the process that this one was forked from.

    A lock is held until all copies of its descriptor are closed, and must end with the writer.
    """
    while _held:
        os.close(_held.pop())


@contextmanager
def worker_lock(folder: AnyPath) -> Iterator[None]:
    """Held by every worker process while it may write."""
    if isinstance(folder, RemotePath):
        yield
        return
    descriptor = os.open(folder / "workers", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _wait_for_workers(path: Path, out: AnyPath) -> None:
    deadline = time.monotonic() + _SECONDS_TO_WAIT
    workers = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while True:
            try:
                fcntl.flock(workers, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise OutputError(
                        f"workers of an earlier run still write to {out}, {_SECONDS_TO_WAIT:g} s "
                        "after it ended; stop them (on a cluster: its tasks), then resume"
                    ) from None
                time.sleep(0.05)
            else:
                return
    finally:
        os.close(workers)


def _locked(path: Path, out: AnyPath) -> int:
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except FileNotFoundError:  # a writer that just ended removed the folder
            continue
        except OSError as error:
            raise OutputError(f"{out} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise OutputError(
                f"{out} is being written by another process; wait for it, or choose another output"
            ) from None
        if _is_still(path, descriptor):
            return descriptor
        os.close(descriptor)  # it was removed between opening and locking it


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
