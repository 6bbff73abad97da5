"""`RemotePath`: a path in a store, with the methods of `pathlib.Path` that quire uses."""

from __future__ import annotations

import fnmatch
import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, cast

from quire.errors import InvalidOption, StorageError
from quire.storage.location import Location, parse
from quire.storage.stores import (
    NATIVE,
    file_system,
    fsspec_system,
    is_store_failure,
    path_in,
    puts_whole,
    storage_error,
    store_errors,
)
from quire.storage.transfers import ReadingFile, each, put_whole, scratch_folder

_BUFFER = 8 << 20
"""Bytes of a request when a file is read from start to end."""


class Entry(NamedTuple):
    """One entry of a listing."""

    name: str
    """The path relative to the listed folder."""
    is_file: bool
    size: int


class Status(NamedTuple):
    """Size and modification time of a file."""

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True, slots=True, repr=False)
class RemotePath:
    """A file or folder in a store; its string form is a URI without secrets or options."""

    location: Location
    inside: str
    """The path relative to the store's root."""

    @classmethod
    def of(cls, uri: str) -> RemotePath:
        """The path that a URI names."""
        return cls(*parse(uri))

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def __str__(self) -> str:
        return f"{self.location.shown}/{self.inside}".rstrip("/")

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.location, f"{self.inside}/{name}".strip("/"))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.inside).name

    @property
    def suffix(self) -> str:
        """The name's last dot and what follows it."""
        return PurePosixPath(self.inside).suffix

    @property
    def parent(self) -> RemotePath:
        """The folder that contains it."""
        return RemotePath(self.location, self.inside.rpartition("/")[0])

    def as_posix(self) -> str:
        """The path relative to the store's root."""
        return self.inside

    def relative_to(self, other: RemotePath) -> PurePosixPath:
        """The path relative to another one."""
        return PurePosixPath(self.inside).relative_to(other.inside)

    @property
    def file_system(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """The `pyarrow.fs.FileSystem` of the store."""
        with self._errors():
            return file_system(self.location)

    @property
    def key(self) -> str:
        """The path as the file system expects it."""
        with self._errors():
            return path_in(self.location, self.inside)

    @property
    def has_temporary_files(self) -> bool:
        """Whether files are written under a temporary name first, then renamed."""
        return not puts_whole(self.location)

    def absolute(self) -> RemotePath:
        """Itself: a URI means the same in every process."""
        return self

    def exists(self) -> bool:
        """Whether there is a file or a folder of this name."""
        return bool(self._info().type.name != "NotFound")

    def is_file(self) -> bool:
        """Whether there is a file of this name."""
        return bool(self._info().type.name == "File")

    def is_dir(self) -> bool:
        """Whether there is a folder; in an object store, whether anything starts with this name."""
        return bool(self._info().type.name == "Directory")

    def is_symlink(self) -> bool:
        """Always false: stores have no links."""
        return False

    def stat(self) -> Status:
        """Size and modification time."""
        info = self._info()
        if info.type.name != "File":
            raise FileNotFoundError(2, "No such file", str(self))
        return Status(int(info.size), int(info.mtime_ns or 0))

    def iterdir(self) -> Iterator[RemotePath]:
        """Everything directly in this folder."""
        return (self / entry.name for entry in self._entries(recursive=False))

    def rglob(self, pattern: str) -> Iterator[RemotePath]:
        """Everything below this folder, at any depth, whose name matches."""
        found = (self / entry.name for entry in self._entries(recursive=True))
        return (path for path in found if fnmatch.fnmatchcase(path.name, pattern))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Everything directly in this folder whose name matches."""
        return (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))

    def listed(self) -> tuple[list[RemotePath], list[RemotePath]]:
        """The folders and the files directly in this folder."""
        entries = self._entries(recursive=False)
        folders = [self / entry.name for entry in entries if not entry.is_file]
        return folders, [self / entry.name for entry in entries if entry.is_file]

    def files_below(self) -> list[RemotePath]:
        """All files below this folder, at any depth, from a single listing."""
        return [self / entry.name for entry in self._entries(recursive=True) if entry.is_file]

    def require_bucket(self) -> None:
        """Raise if the bucket does not exist, which a missing file does not reveal."""
        root = RemotePath(self.location, "")
        if self.location.scheme in NATIVE and not root.exists():
            missing = OSError(f"bucket '{self.location.root}' not found")
            raise storage_error(self.location, str(self), missing)

    def raise_if_store_failed(self, error: BaseException) -> None:
        """Raise if the store failed while Arrow read from it; return if the file is damaged."""
        if isinstance(error, StorageError):
            raise error
        if is_store_failure(error):
            raise storage_error(self.location, str(self), error) from error

    def sizes(self) -> dict[str, int]:
        """The size of every file directly in this folder, by name: one request per thousand."""
        if self.location.scheme not in NATIVE:
            self.file_system.handler.fs.invalidate_cache()  # other processes may have written
        return {e.name: e.size for e in self._entries(recursive=False) if e.is_file}

    def open(self, mode: str = "rb") -> BinaryIO:
        """The file, opened for reading; large ranges are requested as it is read."""
        if mode != "rb":
            raise InvalidOption(f"{self} can be opened for reading only, not as {mode!r}")
        return cast(BinaryIO, io.BufferedReader(ReadingFile(self._opened, self._errors), _BUFFER))

    def open_ranges(self) -> BinaryIO:
        """The file, opened for random access: every read requests just these bytes."""
        return cast(BinaryIO, ReadingFile(self._opened, self._errors))

    def read_range(self, offset: int, size: int) -> bytes:
        """These bytes, or fewer if the file ends before; threads may call it at the same time.

        Opened files do not allow that everywhere: fsspec's ``memory://`` gives all threads the
        same file, with one position.
        """
        if self.location.scheme in NATIVE:
            with self.open_ranges() as file:
                file.seek(offset)
                return file.read(size)
        with self._errors():
            system = fsspec_system(self.location)[0]
            return bytes(system.cat_file(self.key, start=offset, end=offset + size))

    def arrow_file(self) -> Any:  # noqa: ANN401
        """The file as Arrow reads it: only the ranges that it needs."""
        if self.location.scheme in NATIVE:
            return self._opened()
        from pyarrow import PythonFile

        return PythonFile(self.open_ranges(), mode="r")  # keeps the type and text of errors

    def _opened(self) -> Any:  # noqa: ANN401
        with self._errors():
            return self.file_system.open_input_file(self.key)

    def read_bytes(self) -> bytes:
        """The whole file."""
        with self.open() as file:
            return file.read()

    def read_text(self, encoding: str = "utf-8") -> str:
        """The whole file as text."""
        return self.read_bytes().decode(encoding)

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Do nothing: object stores have no folders, and elsewhere uploads create them."""

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        try:
            with self._errors():
                self.file_system.delete_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_folder(self) -> None:
        """Remove the folder and everything in it."""
        if self.location.scheme == "gs":
            # pyarrow removes the files, then fails at the object that represents the folder.
            each(lambda file: file.unlink(missing_ok=True), self.files_below(), at_once=True)
        elif self.is_dir():
            with self._errors():
                self.file_system.delete_dir(self.key)

    @contextmanager
    def written_whole(self) -> Iterator[Path]:
        """A local path whose file is uploaded under this name if the block succeeds."""
        with scratch_folder() as folder:
            local = folder / self.name
            yield local
            try:
                self._upload(local)
            except FileNotFoundError:
                self.require_bucket()
                raise

    def download(self, target: Path) -> None:
        """Copy the file to a local path."""
        with self.open() as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, _BUFFER)

    def _upload(self, local: Path) -> None:
        with self._errors():
            if puts_whole(self.location):
                put_whole(self.location, local, self.key)
                return
            beside = self.parent / f".{self.name}.{local.parent.name}.tmp"
            self.file_system.create_dir(self.parent.key)
            try:
                put_whole(self.location, local, beside.key)
                self.file_system.move(beside.key, self.key)
            except BaseException:
                with suppress(Exception):
                    beside.unlink(missing_ok=True)
                raise

    def _errors(self) -> Any:  # noqa: ANN401
        return store_errors(self.location, str(self))

    def _info(self) -> Any:  # noqa: ANN401
        with self._errors():
            return self.file_system.get_file_info(self.key)

    def _entries(self, recursive: bool) -> list[Entry]:
        """The entries of this folder, sorted by name."""
        if self.location.scheme == "gs" and not recursive:
            return _first_level(self._entries(recursive=True))
        from pyarrow import fs

        mine = self.key.strip("/")
        with self._errors():
            selector = fs.FileSelector(self.key, allow_not_found=True, recursive=recursive)
            infos = self.file_system.get_file_info(selector)
        named = ((info.path.strip("/").removeprefix(mine).strip("/"), info) for info in infos)
        return sorted(Entry(name, bool(i.is_file), i.size or 0) for name, i in named if name)


def _first_level(entries: list[Entry]) -> list[Entry]:
    """The entries directly in a folder, from a recursive listing.

    pyarrow's listing of a folder in Google's store omits subfolders, unless an object represents
    each.
    """
    found: dict[str, Entry] = {}
    for entry in entries:
        name, slash, _ = entry.name.partition("/")
        found.setdefault(name, Entry(name, False, 0) if slash else entry)
    return sorted(found.values())
