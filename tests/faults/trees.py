"""The contents of a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path


def tree(disk: Path) -> dict[str, str]:
    """Hashes of all files, hidden ones too, by name; folders have none."""
    return {
        path.relative_to(disk).as_posix(): ""
        if path.is_dir()
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(disk.rglob("*"))
    }
