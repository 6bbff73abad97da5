"""File operations below one folder, numbered and recorded in a journal; one of them fails.

`install` puts it between a process and its files: whatever goes through Python's `open` and `os` is
seen, in this process and, by its environment and `sitecustomize`, in those that it starts. That
nothing goes past it is a test of its own, which asks the kernel.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

SETTINGS = "QUIRE_TESTS_FAULT"
"""The environment variable that tells a new process which fault to inject."""

ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}
DEATHS = ("kill", "torn", "unsynced", "unsynced-data", "unsynced-last")
KINDS = (*DEATHS, *ERRORS, "short")
STRUCK = "struck"
"""A file in the journal's folder that marks that the fault has happened."""
OF_WRITES = ("torn", "short")
"""Faults that only apply to writes."""

_NAMES = ["fsync", "listdir", "mkdir", "open", "remove", "rename", "replace", "rmdir", "scandir"]
_real = {name: getattr(os, name) for name in [*_NAMES, "unlink", "write"]}
_real_open = io.open


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Which fault happens at which operation, counted from 1; 0 means none."""

    disk: str
    """The folder whose operations are counted."""
    journal: str
    """A folder elsewhere, for the journal."""
    at: int = 0
    kind: str = "kill"
    whole_group: bool = False
    """Whether all processes of the group die together, as in a power failure."""

    def environment(self) -> dict[str, str]:
        return {SETTINGS: json.dumps(asdict(self))}


def install_from_environment() -> None:
    """Called by `sitecustomize` in every process."""
    if SETTINGS in os.environ:
        install(Fault(**json.loads(os.environ[SETTINGS])))


def install(fault: Fault) -> None:
    """Install the layer in this process until it ends."""
    layer = _Layer(fault)
    for name in ("mkdir", "rmdir", "unlink", "remove"):
        setattr(os, name, layer.of_one_path(name, name.replace("remove", "unlink")))
    for name in ("listdir", "scandir"):
        setattr(os, name, layer.of_one_path(name, "list"))
    for name in ("rename", "replace"):
        setattr(os, name, layer.of_two_paths(name))
    os.open, os.write, os.fsync = layer.open_descriptor, layer.write_descriptor, layer.fsync
    io.open = builtins.open = layer.open_file


class _Layer:
    def __init__(self, fault: Fault) -> None:
        self._fault, self._disk = fault, os.path.realpath(fault.disk)
        self._folder = Path(fault.journal)
        self._lock = threading.RLock()

    def of_one_path(self, name: str, operation: str) -> Callable:
        def call(path=".", *arguments, **keywords):
            return self.does(operation, path, partial(_real[name], path, *arguments, **keywords))

        return call

    def of_two_paths(self, name: str) -> Callable:
        def call(path, to, **keywords):
            act = partial(_real[name], path, to, **keywords)
            return self.does("rename", path, act, to=_absolute(to))

        return call

    def open_descriptor(self, path, flags, *arguments, **keywords) -> int:
        act = partial(_real["open"], path, flags, *arguments, **keywords)
        if not flags & (os.O_WRONLY | os.O_RDWR):
            return act()
        return self.does("open", path, act, cut=bool(flags & os.O_TRUNC))

    def write_descriptor(self, descriptor: int, data) -> int:
        return self.writes(
            _path_of(descriptor), data, lambda part: _real["write"](descriptor, part)
        )

    def fsync(self, descriptor) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        path = _path_of(number)
        return self.does("fsync", path, lambda: _real["fsync"](number))

    def open_file(self, file, mode="r", buffering=-1, *arguments, **keywords):
        if not (set(mode) & set("wxa+") and self._is_ours(file)):
            return _real_open(file, mode, buffering, *arguments, **keywords)
        if "+" in mode or buffering == 0:
            raise NotImplementedError(f"the fault layer knows no mode {mode!r}: teach it")
        act = partial(_File, self, os.fspath(file), mode.replace("b", "").replace("t", ""))
        raw = self.does("open", file, act, cut="a" not in mode)
        buffered = io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *arguments, **keywords)

    def writes(self, path, data, act: Callable[[memoryview], int]) -> int:
        view = memoryview(data).cast("B")
        half = view[: len(view) // 2]

        def torn() -> None:
            if half:
                act(half)

        return self.does(
            "write", path, lambda: act(view), torn=torn, short=lambda: act(half or view)
        )

    def does(self, operation: str, path, act: Callable, *, torn=None, short=None, **about):
        """Perform the operation, or its fault, and record it in the journal."""
        if not self._is_ours(path):
            return act()
        name = _absolute(path)
        with self._numbered() as number:
            if self._is_struck(number, operation):
                act = self._strike(act, torn, short)
            about |= {"operation": operation, "path": name, "new": not os.path.lexists(name)}
            try:
                done = act()
            except OSError:
                self._keep({**about, "failed": True}, number)
                raise
            self._keep(about, number)
            return done

    def _is_struck(self, number: int, operation: str) -> bool:
        """Whether this operation fails: the chosen one, or the next write if one is needed."""
        if not self._fault.at or number < self._fault.at:
            return False
        if self._fault.kind in OF_WRITES and operation != "write":
            return False
        try:  # once in all processes
            os.close(_real["open"](self._folder / STRUCK, os.O_CREAT | os.O_EXCL, 0o644))
        except FileExistsError:
            return False
        return True

    def _strike(self, act: Callable, torn: Callable | None, short: Callable | None) -> Callable:
        kind = self._fault.kind
        if kind in ERRORS:
            raise OSError(ERRORS[kind], os.strerror(ERRORS[kind]))
        if kind == "short":
            return short or act
        if kind == "torn" and torn:
            torn()
        if self._fault.whole_group:
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a dead process went on")

    def _is_ours(self, path) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        name = os.path.realpath(os.fsdecode(path))
        return name == self._disk or name.startswith(self._disk + os.sep)

    @contextmanager
    def _numbered(self) -> Iterator[int]:
        """The number of this operation among those of all processes."""
        with self._lock:
            count = _real["open"](
                self._folder / "count", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644
            )
            try:
                fcntl.flock(count, fcntl.LOCK_EX)
                _real["write"](count, b".")
                yield os.fstat(count).st_size
            finally:
                os.close(count)

    def _keep(self, about: dict[str, object], number: int) -> None:
        path = str(about["path"])
        if about["operation"] == "fsync" and "failed" not in about and Path(path).is_file():
            copy = self._folder / f"synced-{number}"
            with _real_open(path, "rb") as file, _real_open(copy, "wb") as kept:
                kept.write(file.read())
            about["copy"] = copy.name
        with _real_open(self._folder / "journal.jsonl", "a", encoding="utf-8") as journal:
            journal.write(json.dumps({"number": number, **about}) + "\n")


class _File(io.FileIO):
    """A file whose writes are operations of the layer."""

    def __init__(self, layer: _Layer, path: str, mode: str) -> None:
        super().__init__(path, mode)
        self._layer, self._path = layer, path

    def write(self, data) -> int:
        return self._layer.writes(self._path, data, super().write)


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def _absolute(path) -> str:
    return str(Path(os.fsdecode(path)).absolute())
