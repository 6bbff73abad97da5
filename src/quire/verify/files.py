"""Files against what a manifest says of them: their bytes, and where they may stand."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quire.errors import CorruptFile


def require_bytes(folder: Path, entry: Mapping[str, Any]) -> None:
    """Raise unless the file of an entry is there with the size and SHA-256 that it says."""
    name = entry["file"]
    path = folder / name
    if not path.is_file():
        raise CorruptFile(f"{name} is missing")
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    if digest.hexdigest() != entry.get("sha256"):
        raise CorruptFile(f"{name} has other bytes than were written: its SHA-256 differs")
    if (size := path.stat().st_size) != entry.get("bytes"):
        raise CorruptFile(f"{name} has {size} bytes, not {entry.get('bytes')}")
