"""Compressed files as streams that report damage and do not expand without limit."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

import pyarrow as pa

from quire.errors import CorruptFile, StorageError
from quire.storage import AnyPath, RemotePath

MAX_EXPANSION = 250
"""Text shrinks to a tenth or a twentieth; more than this is meant to fill a disk or the memory."""
ALWAYS_ALLOWED = 64 << 20
_BUFFER = 1 << 20
"""Bytes read at once: lines longer than Python's 8 KiB take half the time to read."""


class Expansion:
    """Counts what a file of ``size`` bytes expands to while it is read."""

    def __init__(self, path: AnyPath, size: int) -> None:
        self.path, self._size = path, size
        self.expanded = 0

    def add(self, num_bytes: int) -> None:
        """Count more bytes; raise if the total is more than text can expand to."""
        self.expanded += num_bytes
        self.require(self.expanded)

    def require(self, expanded: int) -> None:
        """Raise if this total is more than text can expand to."""
        if expanded > max(ALWAYS_ALLOWED, MAX_EXPANSION * self._size):
            raise CorruptFile(
                f"{self.path} has {self._size} bytes and expands to more than {expanded}, over "
                f"{MAX_EXPANSION} times as many; expand it yourself if that is intended"
            )


def open_decompressed(path: AnyPath, size: int, compression: str | None) -> BinaryIO:
    """The bytes of a file of ``size`` bytes, decompressed."""
    if compression is None:
        return path.open("rb") if isinstance(path, RemotePath) else path.open("rb", _BUFFER)
    stream = _gzip(path) if compression == "gzip" else _zstd(path)
    bounded = _Bounded(cast(io.BufferedIOBase, stream), Expansion(path, size))
    return cast(BinaryIO, io.BufferedReader(bounded, _BUFFER))


def _gzip(path: AnyPath) -> object:
    return gzip.open(path.open() if isinstance(path, RemotePath) else path)


def _zstd(path: AnyPath) -> object:
    if isinstance(path, RemotePath):
        return pa.CompressedInputStream(pa.PythonFile(path.open(), mode="r"), "zstd")
    return pa.input_stream(str(path), compression="zstd")


@contextmanager
def damage_as_corrupt_file(path: AnyPath, what: str) -> Iterator[None]:
    """Turn what decoders raise for damaged data into `CorruptFile`.

    Errors of the disk, which have a number, and errors of a store pass through.
    """
    try:
        yield
    except StorageError:
        raise
    except (EOFError, zlib.error, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(path, RemotePath):
            path.raise_if_store_failed(error)
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise CorruptFile(f"{path} {what}: {error}; fetch it again") from error


class _Bounded(io.RawIOBase):
    def __init__(self, stream: io.BufferedIOBase, expansion: Expansion) -> None:
        self._stream, self._expansion = stream, expansion

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        where = f"is damaged after byte {self._expansion.expanded} of its text"
        with damage_as_corrupt_file(self._expansion.path, where):
            # Arrow's `read` never frees the memory of a read that failed.
            size = self._stream.readinto(buffer)
        self._expansion.add(size)
        return size

    def close(self) -> None:
        self._stream.close()
        super().close()
