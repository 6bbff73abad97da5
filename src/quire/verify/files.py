"""Files against what a manifest says of them: their bytes, and where they may stand."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quire.errors import CorruptFile
from quire.storage import AnyPath, local_copy


@contextmanager
def checked(folder: AnyPath, entry: Mapping[str, Any]) -> Iterator[Path]:
    """The file of an entry, or a copy of it from a store, if it is what the entry says."""
    if not (folder / entry["file"]).is_file():
        raise CorruptFile(f"{entry['file']} is missing")
    with local_copy(folder / entry["file"]) as path:
        require_bytes(path, entry)
        yield path


def require_bytes(path: Path, entry: Mapping[str, Any]) -> None:
    """Raise unless a file has the size and SHA-256 that its entry says."""
    name = entry["file"]
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    if digest.hexdigest() != entry.get("sha256"):
        raise CorruptFile(f"{name} has other bytes than were written: its SHA-256 differs")
    if (size := path.stat().st_size) != entry.get("bytes"):
        raise CorruptFile(f"{name} has {size} bytes, not {entry.get('bytes')}")
