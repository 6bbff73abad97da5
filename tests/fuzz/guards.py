"""Detect what no input may cause while it is read: sockets, programs, access to other files.

Python's audit hook sees what Python does. It does not see files that libraries in C++ and Rust
open, so there are bait files outside the folder, and the kernel reports when one is opened.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

_NEVER = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn",
          "pty.", "urllib.", "ftplib.", "http.", "smtplib.", "webbrowser.", "pickle.find_class",
          "ctypes.dlopen", "ctypes.dlsym", "os.putenv", "os.kill", "os.chdir",
          "signal.pthread_kill", "sys.addaudithook", "sys.setprofile", "sys.settrace")  # fmt: skip
_PATHS = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate",
          "os.chmod", "os.chown", "os.utime", "os.listdir", "os.scandir", "shutil.")  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_IN_OPEN = 0x20
_WRITERS_OF_CODE = ("dataclasses", "collections", "jinja2", "numpy", "typing")


class Forbidden(BaseException):
    """Something was about to happen that no input may cause."""


class Guard:
    """The audit hook of this process, active while `listening`."""

    def __init__(self, folder: Path, bait: Path) -> None:
        self._home = str(folder.resolve())
        self._libraries = tuple({os.path.realpath(p) for p in (*sys.path, sys.prefix) if p})
        self._bait = _Bait(bait)
        self._is_listening = False
        self.heard: list[str] = []
        sys.addaudithook(self._hear)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record what happens in this block in `heard`."""
        self.heard = []
        self._is_listening = True
        try:
            yield
        finally:
            self._is_listening = False
            self.heard += self._bait.taken()

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._is_listening and (problem := self._problem(event, arguments)):
            self.heard.append(problem)
            raise Forbidden(problem)

    def _problem(self, event: str, arguments: tuple[object, ...]) -> str | None:
        if event == "open":
            path, _, flags = arguments
            writes = bool(isinstance(flags, int) and flags & _WRITES)
            return self._strange(event, path, only_home=writes)
        if event in ("exec", "code.__new__"):
            return self._foreign_code(event, arguments[0])
        if event.startswith(_NEVER):
            return f"{event} {arguments!r:.150}"
        if event.startswith(_PATHS):
            only_home = event not in ("os.listdir", "os.scandir")  # imports look for files
            texts = [part for part in arguments if isinstance(part, str | bytes | os.PathLike)]
            return next(filter(None, (self._strange(event, t, only_home) for t in texts)), None)
        return None

    def _strange(self, event: str, path: object, only_home: bool) -> str | None:
        if isinstance(path, int) or path is None:
            return None
        real = os.path.realpath(os.fsdecode(path))  # type: ignore[arg-type]
        if real == self._home or real.startswith(self._home + os.sep):
            return None
        is_code = real.endswith((".py", ".pyc", ".so")) or event != "open"
        if not only_home and is_code and real.startswith(self._libraries):
            return None
        return f"{event} {real!r:.150}"

    def _foreign_code(self, event: str, code: object) -> str | None:
        """Modules of libraries are not, nor is the code that these libraries generate."""
        name = code.co_filename if isinstance(code, CodeType) else "?"
        is_module = not name.startswith("<") and os.path.realpath(name).startswith(self._libraries)
        if name.startswith("<frozen") or (is_module and event == "exec") or _made_by_a_library():
            return None
        return f"{event} {name!r:.150}"


def _made_by_a_library() -> bool:
    """Dataclasses write methods as text, typing reads our hints, Jinja compiles for the sandbox."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    name = "" if frame is None else str(frame.f_globals.get("__name__"))
    return name.partition(".")[0] in _WRITERS_OF_CODE


class _Bait:
    """Files that nothing has a reason to open; Linux reports if one is opened (inotify)."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for name in ("secret", "secret.json", "secret.parquet", "secret.arrow", "shard-00000-000"):
            (folder / name).write_bytes(b"bait")
        self._descriptor = -1
        if sys.platform == "linux":
            libc = ctypes.CDLL(None, use_errno=True)
            self._descriptor = libc.inotify_init1(os.O_NONBLOCK)
            libc.inotify_add_watch(self._descriptor, os.fsencode(folder), _IN_OPEN)

    def taken(self) -> list[str]:
        try:
            data = os.read(self._descriptor, 4096) if self._descriptor >= 0 else b""
        except BlockingIOError:
            return []
        return [f"bait opened: {data[16:48].rstrip(bytes(1))!r}"] if data else []
