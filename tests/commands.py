"""The command line in this process: what `quire` prints for some arguments, and its exit code.

Starting Python costs a second, so real processes are left to the tests that are about them
(`tests.corpus.command`, `tests.terminal`).
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import ModuleType
from unittest.mock import patch

from quire.cli.app import main


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as in a pipe, with these variables in addition to the environment's."""
    words = ["quire", *map(str, arguments)]
    out, err = _pipe(), _pipe()
    with (
        patch.object(sys, "argv", words),
        _other_main(),
        patch.dict(os.environ, environment),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        code = _exit_code()
    return subprocess.CompletedProcess(words, code, _written(out), _written(err))


@contextmanager
def _other_main() -> Iterator[None]:
    """Another main module, since usage lines name the program.

    `patch.dict` would forget all modules that the command imports, and some load only once.
    """
    own = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = own


def _exit_code() -> int:
    try:
        main()
    except SystemExit as ending:
        return int(ending.code or 0)
    except BaseException:  # as the interpreter does at its end
        traceback.print_exc()
        return 1
    return 0


def _pipe() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8")


def _written(pipe: io.TextIOWrapper) -> str:
    pipe.flush()
    pipe.seek(0)
    return pipe.read()
