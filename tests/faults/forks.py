"""Processes forked from this one, which never come back into its code."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable


def start(act: Callable[[], object]) -> int:
    """The number of a process, the leader of a group of its own, that does this and ends."""
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
    """Kill it and its group after so many seconds; whether that was before its end."""
    time.sleep(after)
    for kill in (os.kill, os.killpg):  # the group is there once the process has come to make it
        try:
            kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert ended in (0, -signal.SIGKILL), f"it ended by itself, with {ended}"
    return ended != 0
