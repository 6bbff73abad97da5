"""The command that made a file of counts, to be kept in it."""

from __future__ import annotations

import sys
from pathlib import Path


def command_line(module: str) -> str:
    """How this process was started, without the places of this machine."""
    words = [Path(word).name if "/" in word else word for word in sys.argv[1:]]
    return " ".join(["python -m", module, *words])
