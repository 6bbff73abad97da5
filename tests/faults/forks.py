"""Processes forked from this one, which never return to its code."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable


def start(act: Callable[[], object]) -> int:
    """The id of a process that runs this function and exits; it leads its own process group."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()
        act()
        code = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def is_killed(process: int, after: float) -> bool:
    """Kill it and its group after this many seconds; whether it was still running."""
    time.sleep(after)
    for kill in (os.kill, os.killpg):  # the group is there once the process has come to make it
        try:
            kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert ended in (0, -signal.SIGKILL), f"it ended by itself, with {ended}"
    return ended != 0
