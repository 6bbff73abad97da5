"""A command as a user sees it: run on a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Sequence


def shown_in_terminal(command: Sequence[object], columns: int = 100) -> str:
    """Everything that the command, which must succeed, writes to a terminal of this width."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    process = subprocess.Popen(
        [str(word) for word in command], stdout=follower, stderr=follower, env=environment
    )
    os.close(follower)
    seen = b"".join(iter(lambda: _read(leader), b""))
    os.close(leader)
    assert process.wait() == 0
    return seen.decode()


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 4096)
    except OSError:  # the other side is closed
        return b""
