"""Globs on the local disk and in stores, with the same meaning."""

from __future__ import annotations

import fnmatch
import glob
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from quire.storage.remote import RemotePath


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
