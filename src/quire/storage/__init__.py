"""Paths to read and write: local ones as `pathlib.Path`, those in object stores by URI.

Importing this package imports neither pyarrow nor fsspec; the first request to a store does.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from quire.errors import InvalidOption
from quire.storage.location import is_uri, require_unflattened
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


def matching(
    pattern: Path | RemotePath,
) -> tuple[Path, Sequence[Path]] | tuple[RemotePath, Sequence[RemotePath]]:
    """The folder before the first wildcard, and the files that match, in any order.

    ``*`` and ``?`` match inside a name, ``**`` matches any number of folders, and a name that
    begins with a dot is matched only by a pattern that does. Only folders that can match are
    listed.
    """
    if isinstance(pattern, Path):
        root = Path(*takewhile(lambda part: not glob.has_magic(part), pattern.parts))
        names = glob.glob(str(pattern), recursive=True)  # noqa: PTH207 - absolute ones too
        return root, [path for path in map(Path, names) if path.is_file()]
    return _matching_in_store(pattern)


def _matching_in_store(pattern: RemotePath) -> tuple[RemotePath, list[RemotePath]]:
    parts = pattern.inside.split("/")
    fixed = next(i for i, part in enumerate(parts) if glob.has_magic(part))
    root = RemotePath(pattern.location, "/".join(parts[:fixed]))
    return root, list(dict.fromkeys(_expand(root, parts[fixed:])))


def _expand(folder: RemotePath, parts: Sequence[str]) -> Iterator[RemotePath]:
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _any_depth(folder, rest or ["*"])
    elif not glob.has_magic(part) and rest:
        yield from _expand(folder / part, rest)
    else:
        folders, files = folder.listed()
        wanted = folders if rest else files
        for path in wanted:
            if _matches(path.name, part):
                yield from _expand(path, rest) if rest else [path]


def _any_depth(folder: RemotePath, rest: Sequence[str]) -> Iterator[RemotePath]:
    yield from _expand(folder, rest)
    for below in folder.listed()[0]:
        if not below.name.startswith("."):
            yield from _any_depth(below, rest)


def _matches(name: str, part: str) -> bool:
    return fnmatch.fnmatchcase(name, part) and (part.startswith(".") or not name.startswith("."))
