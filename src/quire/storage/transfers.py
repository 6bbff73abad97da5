"""Bytes to and from a store."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from quire.storage.location import Location
from quire.storage.stores import NATIVE, file_system, fsspec_system

_WRITE = 1 << 30
"""The most bytes of one write; a part of an upload may have five times as many."""
_TRIES = 5
_FIRST_PAUSE = 0.1


def put_whole(location: Location, local: Path, key: str) -> None:
    """Upload a file as one object, which appears when this returns, or not at all.

    It goes on in a thread of its own: an interrupt in the middle would close the stream, and
    closing it publishes what was written so far. (`pyarrow.fs.copy_files` has no such moment, but
    passes over errors of closing, so that an object that was refused is taken for written.)
    """
    from concurrent.futures import ThreadPoolExecutor

    put = _put_native if location.scheme in NATIVE else _put_by_fsspec
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(put, location, local, key).result()


def _put_native(location: Location, local: Path, key: str) -> None:
    from pyarrow import memory_map

    with memory_map(str(local)) as source, file_system(location).open_output_stream(key) as sink:
        while (block := source.read_buffer(_WRITE)).size:
            sink.write(block)


def _put_by_fsspec(location: Location, local: Path, key: str) -> None:
    fsspec_system(location)[0].put_file(str(local), key)


class ReadingFile(io.RawIOBase):
    """Bytes of a file in a store, as they are asked for."""

    def __init__(
        self,
        opened: Callable[[], Any],
        told: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._told = told
        self._file = opened()

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """Fill the buffer as far as there are bytes."""
        at = self._file.tell()
        with self._told():
            for attempt in range(_TRIES):
                try:
                    return int(self._file.readinto(buffer))
                except OSError as error:
                    if attempt + 1 == _TRIES or not _is_passing(error):
                        raise
                    time.sleep(_FIRST_PAUSE * 2**attempt)
                    self._file.seek(at)
        raise AssertionError  # the last attempt returns or raises

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to another place."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """The place."""
        return int(self._file.tell())

    def close(self) -> None:
        """Let go of the file."""
        if not self.closed:
            self._file.close()
        super().close()


def _is_passing(error: OSError) -> bool:
    """Whether it is worth asking again.

    Requests are repeated below, save for one case: where a store answers a request for few bytes
    with an error of more, the AWS library has no room for it and does not see that it may repeat.
    """
    return "Failed to flush response stream" in str(error)
