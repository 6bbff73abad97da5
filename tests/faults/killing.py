"""Code that a child process runs first, so that it dies or fails at a chosen file operation."""

from __future__ import annotations

DIE = """
import os, signal
left = {count}
out = {out!r}
def at_operation(event, arguments):
    global left
    named = [os.fsdecode(a) for a in arguments[:2] if isinstance(a, (str, bytes, os.PathLike))]
    changes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir") or (
        event == "open" and len(arguments) > 2 and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    )
    if changes and any(name.startswith(out) for name in named):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(at_operation)
real_sync = os.fsync
def sync(descriptor):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real_sync(descriptor)
os.fsync = sync
"""
"""SIGKILL before the given operation that changes the output, or before a sync."""
