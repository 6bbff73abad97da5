"""Paths to read and write: local ones as `pathlib.Path`, those in object stores by URI.

Importing this package imports neither pyarrow nor fsspec; the first request to a store does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from quire.errors import InvalidOption
from quire.storage.location import is_uri, require_unflattened
from quire.storage.matching import matching
from quire.storage.remote import RemotePath
from quire.storage.transfers import each, local_copy, local_folder, sweep_scratch

__all__ = [
    "AnyPath",
    "Named",
    "RemotePath",
    "as_path",
    "each",
    "is_uri",
    "local_copy",
    "local_folder",
    "matching",
    "sweep_scratch",
]

AnyPath: TypeAlias = Path | RemotePath
Named: TypeAlias = str | os.PathLike[str] | RemotePath
"""What a user may pass as a path."""


def as_path(named: Named) -> AnyPath:
    """A `Path`, or a `RemotePath` if the argument is a URI.

    >>> as_path("corpus/a.jsonl"), str(as_path("s3://key:secret@bucket/corpus?region=eu-west-1"))
    (PosixPath('corpus/a.jsonl'), 's3://bucket/corpus')
    """
    if isinstance(named, RemotePath):
        return named
    if not isinstance(named, str | os.PathLike):
        raise InvalidOption(f"{named!r} is not a path: give a string, a Path or a URI")
    require_unflattened(named)
    text = os.fspath(named)
    if not is_uri(text):
        return Path(named)
    if text.lower().startswith(("file://", "local://")):
        return _local(text)
    return RemotePath.of(text)


def _local(uri: str) -> Path:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise InvalidOption(
            f"{parts.scheme}:// names the host {parts.netloc.rpartition('@')[2]!r}\n"
            f"write {parts.scheme}:///FOLDER, with three slashes, or a local path"
        )
    return Path(unquote(parts.path))
