"""Files that appear whole or not at all."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quire.storage import Named, RemotePath


@contextmanager
def whole_file(path: Named) -> Iterator[Path]:
    """A temporary path beside the given one, which takes its name when the block ends well.

    Synced before and after the rename, so that a crash leaves the old file or the new one. What is
    meant for a store is written on the local disk, and goes there as one object.
    """
    if isinstance(path, RemotePath):
        with path.written_whole() as local:
            yield local
        return
    target = Path(path)
    # Several machines may write to one folder, where a process's number is not its own.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def leftovers_swept(path: str | os.PathLike[str]) -> Iterator[None]:
    """The temporary files of those who died while they wrote this path are gone in the block.

    For what one process writes again and again at one place. They are left alone while another
    one is in such a block in the same folder: the living hold a lock, and the dead hold none.
    """
    target = Path(path)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        with suppress(ImportError, OSError):  # where no folder can be locked, what is left stays
            _sweep(target, descriptor)
        yield
    finally:
        os.close(descriptor)


def _sweep(target: Path, folder: int) -> None:
    import fcntl

    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
            left.unlink()
    finally:
        fcntl.flock(folder, fcntl.LOCK_SH)


def make_folder(folder: Path) -> None:
    """Make the folder and those above it, where they are missing, so that a crash keeps them.

    What is synced inside a folder is lost with it where its own name was never synced.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        _sync(one.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
