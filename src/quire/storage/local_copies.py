"""Files of a store on the local disk, for as long as a block runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire.storage.remote import RemotePath

_PREFIX = "quire-transfer-"


@contextmanager
def scratch_folder(within: Path | None = None) -> Iterator[Path]:
    """A new folder, in the system's temporary one unless it is said where, gone behind the block.

    It is locked as long as its process lives, so that `sweep_scratch` knows those of the dead.
    """
    folder, descriptor = _made_and_locked(within)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _made_and_locked(within: Path | None) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=within))
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # swept before it was locked
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            return folder, descriptor
        os.close(descriptor)


def sweep_scratch(within: Path | None = None) -> None:
    """Take away what killed processes of this user left there."""
    for folder in (within or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid != os.getuid():
                    continue
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


@contextmanager
def local_folder(path: Path | RemotePath) -> Iterator[Path]:
    """The folder on the local disk: itself, or a copy of all its files, gone behind the block."""
    if isinstance(path, Path):
        yield path
        return
    with scratch_folder() as scratch:
        folder = scratch / (path.name or path.location.root)
        folder.mkdir()
        for file in path.files_below():
            target = folder / file.relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.download(target)
        yield folder


@contextmanager
def local_copy(path: Path | RemotePath, within: Path | None = None) -> Iterator[Path]:
    """The file on the local disk: itself, or a copy that is gone behind the block."""
    if isinstance(path, Path):
        yield path
        return
    with scratch_folder(within) as folder:
        path.download(folder / path.name)
        yield folder / path.name
