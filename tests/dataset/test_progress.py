"""The progress bar appears on a terminal or on request, and not otherwise."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

import quire

SCRIPT = """
import quire
rows = quire.pack_dataset([{{"text": "abc"}}] * 200, "byte", max_length=64, progress={progress})
print(len(rows))
"""


def stderr_on_a_terminal(progress: bool | None) -> bytes:
    """What a process writes to stderr if that is a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", SCRIPT.format(progress=progress)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
        assert int(process.stdout.read()) > 1
    os.close(ours)
    return shown


@pytest.mark.slow
@pytest.mark.parametrize(("progress", "seen"), [(None, True), (True, True), (False, False)])
def test_a_terminal_shows_the_bar_unless_it_is_turned_off(progress, seen):
    shown = stderr_on_a_terminal(progress)
    assert (b"tokenizing" in shown and b"200/200" in shown) if seen else shown == b""


def test_nothing_is_shown_without_a_terminal_unless_requested(capfd):
    quire.pack_dataset([{"text": "abc"}] * 20, "byte", max_length=64)
    assert capfd.readouterr() == ("", "")
    quire.pack_dataset([{"text": "abc"}] * 20, "byte", max_length=64, progress=True)
    assert "tokenizing" in capfd.readouterr().err
