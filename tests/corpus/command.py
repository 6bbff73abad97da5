"""The installed command as its users start it; `python -m tests.corpus.command` with arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START = """
import sys
{before}
from quire.cli import app
from quire.cli.pack import pack, replan
from quire.cli.verify import verify
names = [command.callback.__name__ for command in app.app.registered_commands]
for command in (pack, replan, verify):
    if command.__name__ not in names:
        app.app.command()(command)
app.main()
"""


def command(*arguments: object, before: str = "") -> list[str]:
    """The command line; ``before`` is code that runs first in the same process."""
    return [sys.executable, "-c", START.format(before=before), *map(str, arguments)]


def run(*arguments: object, before: str = "", **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command(*arguments, before=before),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
