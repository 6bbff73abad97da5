"""What a process that died while it saved a state left beside it."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def leftovers_swept(path: str | os.PathLike[str]) -> Iterator[None]:
    """The temporary files of those who died while they wrote this path are gone in the block.

    They are left alone while somebody else saves a state in the same folder: the living hold a
    lock, as this does while the block runs, and the dead hold none.
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
