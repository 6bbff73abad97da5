"""Readers that do something forbidden; the guards must detect each of them."""

from __future__ import annotations

import builtins
import contextlib
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.fuzz.target import Subject, Target, by_name


def _control(name: str, misdeed: Callable[[Path], object]) -> Target:
    """A target that does something forbidden in about every second execution."""

    def prepare(folder: Path) -> Subject:
        def read(draw: float) -> None:
            if draw < 1 / 2:
                misdeed(folder)

        return Subject(make=lambda choose: choose.random(), read=read)

    return Target(name=f"control_{name}", prepare=prepare)


def _open_socket(_folder: Path) -> None:
    socket.socket().close()


def _read_outside(_folder: Path) -> None:
    Path("/etc/hostname").read_bytes()


def _write_outside(folder: Path) -> None:
    (folder.parent / "beside").write_text("x")


def _read_unheard(folder: Path) -> None:
    """In C++, where Python's audit hook sees nothing."""
    pa.memory_map(str(folder.parent / "outside" / "secret")).close()


def _remove_outside(folder: Path) -> None:
    (folder.parent / "outside" / "secret").unlink()


def _run_program(_folder: Path) -> None:
    subprocess.run(["true"], check=True)


def _run_code(_folder: Path) -> None:
    builtins.exec(compile("x = 1", "<given>", "exec"), {})  # noqa: S102 - detected


def _unpickle(_folder: Path) -> None:
    pickle.loads(b"cos\nsystem\n.")  # noqa: S301 - detected before anything happens


def _raise_key_error(_folder: Path) -> None:
    raise KeyError("keys")


def _swallow(folder: Path) -> None:
    """Catching every exception does not hide it."""
    with contextlib.suppress(BaseException):
        _open_socket(folder)


def _hang(_folder: Path) -> None:
    time.sleep(60)


def _take_memory(_folder: Path) -> None:
    np.zeros(1 << 32, np.uint8)


def _run_over(_folder: Path) -> None:
    np.int64(2**62) * np.int64(4)


def _crash(_folder: Path) -> None:
    sys.stdout.flush()
    os.abort()


TARGETS = by_name(
    _control("socket", _open_socket),
    _control("read_outside", _read_outside),
    _control("write_outside", _write_outside),
    _control("read_unheard", _read_unheard),
    _control("remove_outside", _remove_outside),
    _control("program", _run_program),
    _control("code", _run_code),
    _control("pickle", _unpickle),
    _control("key_error", _raise_key_error),
    _control("swallowed", _swallow),
    _control("hang", _hang),
    _control("memory", _take_memory),
    _control("overflow", _run_over),
    _control("crash", _crash),
)
