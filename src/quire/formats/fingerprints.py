"""Fingerprints of files: a hash of a sample of their bytes, which large files allow too."""

from __future__ import annotations

import hashlib
import os
from typing import BinaryIO

from quire.storage import AnyPath, RemotePath

_BLOCK, _NUM_BLOCKS = 1 << 16, 16
FINGERPRINT = (
    f"sha256 of the size and of {_NUM_BLOCKS} blocks of {_BLOCK} bytes spread evenly over the "
    "file, or of all of it where it is no larger"
)


def fingerprint_of_file(path: AnyPath) -> tuple[str, int, int]:
    """The fingerprint, the size and the time of the last change."""
    if isinstance(path, RemotePath):
        with path.open_ranges() as ranges:
            now = path.stat()
            return _digest(ranges, now.st_size), now.st_size, now.st_mtime_ns
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        return _digest(file, stat.st_size), stat.st_size, stat.st_mtime_ns


def _digest(file: BinaryIO, size: int) -> str:
    digest = hashlib.sha256(str(size).encode())
    if size <= _BLOCK * _NUM_BLOCKS:
        digest.update(file.read())
    else:
        for block in range(_NUM_BLOCKS):
            file.seek((size - _BLOCK) * block // (_NUM_BLOCKS - 1))
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()
