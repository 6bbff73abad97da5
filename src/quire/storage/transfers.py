"""Bytes between stores and the local disk: uploads, reads, local copies and parallel requests."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from quire.storage.location import Location
from quire.storage.stores import NATIVE, file_system, fsspec_system

if TYPE_CHECKING:
    from quire.storage.remote import RemotePath

Item = TypeVar("Item")
Result = TypeVar("Result")
_THREADS = 16
_WRITE = 1 << 30
"""The most bytes of one write; a part of an upload may have five times as many."""
_TRIES = 5
_FIRST_PAUSE = 0.1
_SCRATCH = "quire-transfer-"


def each(
    function: Callable[[Item], Result], items: Iterable[Item], *, at_once: bool
) -> list[Result]:
    """The results in order: in threads for stores, where latency dominates; else one by one.

    >>> each(len, ["a", "bc"], at_once=True)
    [1, 2]
    """
    if not at_once:
        return list(map(function, items))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_THREADS) as threads:
        pending = [threads.submit(function, item) for item in items]
        try:
            return [future.result() for future in pending]
        finally:
            for future in pending:
                future.cancel()


def put_whole(location: Location, local: Path, key: str) -> None:
    """Upload a file as one object, which is visible when this returns, or not at all.

    The upload runs in its own thread: an interrupt in the middle would close the stream, and
    closing it publishes what was written so far. (`pyarrow.fs.copy_files` cannot be interrupted
    there, but it ignores errors of closing, so a rejected object would count as written.)
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
    """A file in a store, whose bytes are requested when they are read."""

    def __init__(
        self,
        opened: Callable[[], Any],
        errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._errors = errors
        self._file = opened()

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        """Fill the buffer with as many bytes as are left."""
        at = self._file.tell()
        with self._errors():
            for attempt in range(_TRIES):
                try:
                    return int(self._file.readinto(buffer))
                except OSError as error:
                    if attempt + 1 == _TRIES or not _is_transient(error):
                        raise
                    time.sleep(_FIRST_PAUSE * 2**attempt)
                    self._file.seek(at)
        raise AssertionError  # the last attempt returns or raises

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to another position."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """The position."""
        return int(self._file.tell())

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
        super().close()


def _is_transient(error: OSError) -> bool:
    """Whether a retry may succeed.

    The file systems retry requests themselves, except in one case: where a store answers a request
    for few bytes with a longer error, the AWS library has no room for it and cannot tell that it
    may retry.
    """
    return "Failed to flush response stream" in str(error)


@contextmanager
def scratch_folder(within: Path | None = None) -> Iterator[Path]:
    """A new temporary folder that is removed after the block; in ``within`` if that is given.

    It stays locked while its process lives, so `sweep_scratch` can recognize abandoned ones.
    """
    folder, descriptor = _made_and_locked(within)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _made_and_locked(within: Path | None) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=within))
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # swept before it was locked
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            return folder, descriptor
        os.close(descriptor)


def sweep_scratch(within: Path | None = None) -> None:
    """Remove scratch folders that killed processes of this user left behind."""
    for folder in (within or Path(tempfile.gettempdir())).glob(f"{_SCRATCH}*"):
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
    """The folder on the local disk: itself, or a temporary copy of all its files."""
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
    """The file on the local disk: itself, or a temporary copy."""
    if isinstance(path, Path):
        yield path
        return
    with scratch_folder(within) as folder:
        path.download(folder / path.name)
        yield folder / path.name
