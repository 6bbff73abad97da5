"""The files behind the inputs of a packed dataset, found by other code than that which packs."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from quire.errors import InvalidOption
from quire.storage import AnyPath, Named, RemotePath, as_path, matching


def paths_of(manifest: Mapping[str, Any], named: Sequence[Named]) -> list[AnyPath]:
    """The file behind every input that the manifest names, by name, size and fingerprint."""
    candidates = [pair for one in named for pair in _files_behind(one)]
    found = []
    for entry in manifest["inputs"]:
        chosen = _named_as(entry["name"], candidates)
        if chosen is None:
            raise InvalidOption(f"{entry['name']} was packed, but is not among the given inputs")
        path = chosen[0]
        candidates.remove(chosen)
        if (size := path.stat().st_size) != entry["bytes"]:
            raise InvalidOption(
                f"{path} has {size} bytes but had {entry['bytes']} when it was packed"
            )
        if (digest := _fingerprint(path, size)) != entry["fingerprint"]:
            raise InvalidOption(
                f"{path} was changed after it was packed: its fingerprint is {digest}, not "
                f"{entry['fingerprint']}; give the file as it was, or pack again"
            )
        found.append(path)
    return found


def _fingerprint(path: AnyPath, size: int) -> str:
    """SHA-256 of the size and the content; of a large file, of 16 blocks of 64 KiB."""
    digest = hashlib.sha256(str(size).encode())
    with path.open_ranges() if isinstance(path, RemotePath) else path.open("rb") as file:
        if size <= 16 << 16:
            digest.update(file.read())
            return digest.hexdigest()
        for block in range(16):
            file.seek((size - (1 << 16)) * block // 15)
            digest.update(file.read(1 << 16))
    return digest.hexdigest()


def _named_as(name: str, candidates: Sequence[tuple[AnyPath, str]]) -> tuple[AnyPath, str] | None:
    """The first file of that name below what was given, else the first whose path ends with it."""
    own = (pair for pair in candidates if pair[1] == name)
    ending = (pair for pair in candidates if f"/{_whole(pair[0])}".endswith(f"/{name}"))
    return next(own, None) or next(ending, None)


def _whole(path: AnyPath) -> str:
    """The path from its root on: a name may begin above the folder that is worked in."""
    return path.as_posix() if isinstance(path, RemotePath) else os.path.abspath(path)  # noqa: PTH100


def _files_behind(named: Named) -> list[tuple[AnyPath, str]]:
    """(path, name below what was given) of every file, in the order of names."""
    path = as_path(named)
    below = _remote(path) if isinstance(path, RemotePath) else _local(path, str(named))
    return sorted(below, key=lambda pair: pair[1])


def _remote(path: RemotePath) -> Iterator[tuple[AnyPath, str]]:
    has_magic = glob.has_magic(path.inside)
    root, files = matching(path) if has_magic else (path, path.files_below() or [path])
    yield from ((file, _below(file, root)) for file in files)


def _local(path: Path, text: str) -> Iterator[tuple[AnyPath, str]]:
    root, tops = path, [path]
    if glob.has_magic(text) and not path.exists():
        root = Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))
        tops = [Path(found) for found in glob.glob(text, recursive=True)]  # noqa: PTH207
    files = (p for top in tops for p in (top.rglob("*") if top.is_dir() else [top]))
    yield from ((file, _below(file, root)) for file in set(files) if not file.is_dir())


def _below(file: AnyPath, root: AnyPath) -> str:
    return file.name if file == root else file.relative_to(root).as_posix()  # type: ignore[arg-type]
