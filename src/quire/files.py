"""Files that are written as a whole or not at all, and their hashes."""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from quire.storage import AnyPath, Named, RemotePath

_BLOCK = 1 << 22


@contextmanager
def whole_file(path: Named) -> Iterator[Path]:
    """A temporary path in the same folder, renamed to the given one if the block succeeds.

    It is synced before and after the rename, so a crash leaves the old file or the new one. A file
    for a store is written to the local disk first, then uploaded as one object.
    """
    if isinstance(path, RemotePath):
        with path.written_whole() as local:
            yield local
        return
    target = Path(path)
    # Process ids are not unique where several machines write to one folder.
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
    """Remove temporary files that killed writers of this path left, before the block runs.

    For files that are written repeatedly. Nothing is removed while another process is in such a
    block in the same folder: a live writer holds a lock, a dead one does not.
    """
    target = Path(path)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        with suppress(ImportError, OSError):  # folders that cannot be locked are not swept
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
    """Create the folder and its missing parents, and sync them so that they survive a crash.

    Synced files are lost with their folder if the folder's own name was never synced.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in missing:
        _sync(one.parent)


def sha256_of(path: AnyPath) -> str | None:
    """SHA-256 of a file; None if there is no such file."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
