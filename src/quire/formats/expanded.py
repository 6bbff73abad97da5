"""Files that cannot be mapped as they are: expanded once, into the user's cache.

Compressed shards and parquet have no place at which a document's tokens are. Their expanded form is
a file of the cache, named by what it was made of, and can be removed at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from quire.errors import OutputError
from quire.files import leftovers_swept, whole_file
from quire.formats.compression import open_decompressed
from quire.formats.fingerprints import fingerprint_of_file
from quire.formats.token_files import TokenBytes
from quire.storage import AnyPath, RemotePath

_BLOCK = 1 << 22


def expanded(path: AnyPath, kind: str, write: Callable[[Path], None]) -> Path:
    """The expanded form of a file, which ``write`` makes if it is not in the cache."""
    target = _folder() / f"{fingerprint_of_file(path)[0][:40]}.{kind}"
    if not target.exists():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with leftovers_swept(target), whole_file(target) as temporary:
                write(temporary)
        except OSError as error:
            raise OutputError(
                f"{path} cannot be expanded to {target.parent}: {error.strerror or error}; make "
                "room, or name another folder with QUIRE_CACHE"
            ) from error
    return target


def decompressed(path: AnyPath, compression: str) -> TokenBytes:
    """The bytes of a compressed file, under its own name in messages."""

    def write(target: Path) -> None:
        size = path.stat().st_size
        with open_decompressed(path, size, compression) as source, target.open("wb") as sink:
            while block := source.read(_BLOCK):
                sink.write(block)

    return TokenBytes(path, expanded(path, "raw", write))


def on_this_disk(path: AnyPath) -> Path:
    """The file itself, or a copy of one in a store."""
    return expanded(path, "copy", path.download) if isinstance(path, RemotePath) else path


def _folder() -> Path:
    if given := os.environ.get("QUIRE_CACHE"):
        return Path(given) / "corpora"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "quire" / "corpora"
