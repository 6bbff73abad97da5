"""What the user named, as a list of files in an order that no file system decides."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from quire.corpus.output import lies_inside
from quire.errors import CorruptFile, InvalidOption, SourceChanged, SourceError, StorageError
from quire.storage import AnyPath, Named, RemotePath, as_path, each, matching

KINDS = {
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl.gz",
    ".jsonl.zst": "jsonl.zst",
    ".ndjson": "jsonl",
    ".ndjson.gz": "jsonl.gz",
    ".ndjson.zst": "jsonl.zst",
    ".json": "jsonl",  # lines too, as C4 and others are published
    ".json.gz": "jsonl.gz",
    ".json.zst": "jsonl.zst",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "txt",
}
_IN_FOLDERS = [ending for ending in KINDS if ending != ".json"]
"""Beside data, a folder often has a .json that describes it; such files are named one by one."""
_BLOCK, _NUM_BLOCKS = 1 << 16, 16
FINGERPRINT = (
    f"sha256 of the size and of {_NUM_BLOCKS} blocks of {_BLOCK} bytes spread evenly over the "
    "file, or of all of it where it is no larger"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFile:
    """One file of the corpus."""

    number: int
    path: AnyPath
    name: str
    """Below what the user named, or below the folder that all inputs share."""
    kind: str
    size: int
    fingerprint: str
    changed_at: int
    """Kept in memory alone: tells whether the file is written to during the run."""

    def open(self) -> BinaryIO:
        """The file, if it is still what it was."""
        self.require_unchanged()
        return self.path.open("rb")

    @contextmanager
    def errors_of_reading(self) -> Iterator[None]:
        """Errors of the disk while the file is read, as errors that name it."""
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            raise SourceError(
                f"{self.path} cannot be read: {error.strerror or error}; what is committed stays: "
                "mend the cause, then resume"
            ) from error

    def require_unchanged(self) -> None:
        """Raise if the file is not what it was when the work was planned."""
        try:
            now = self.path.stat()
        except StorageError:
            raise
        except OSError as error:
            raise SourceChanged(f"{self.path} can no longer be read: {error.strerror}") from error
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed_at):
            raise SourceChanged(
                f"{self.path} changed during the run: it had {self.size} bytes and now has "
                f"{now.st_size}; let it come to rest, then pack into a new output"
            )

    def to_dict(self) -> dict[str, object]:
        """What the manifest says of it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "bytes": self.size,
            "fingerprint": self.fingerprint,
        }


def find_inputs(named: Iterable[Named], out: AnyPath | None = None) -> tuple[InputFile, ...]:
    """All files behind files, globs, folders and saved datasets: in the order that they are named.

    Inside a glob or a folder, by name. A file that would come twice is an error. What a glob finds
    inside the output ``out`` was written there by an earlier run of the same, and is no input.
    """
    found = [pair for one in as_list(named) for pair in _looked_up(one, out)]
    if not found:
        raise InvalidOption("there is no input; name files, globs or folders")
    seen: dict[object, AnyPath] = {}
    for path, _ in found:
        identity = _identity(path)
        if identity in seen:
            raise InvalidOption(
                f"{path} and {seen[identity]} are the same file, whose documents would come "
                "twice; name it once"
            )
        seen[identity] = path
    in_stores = any(isinstance(path, RemotePath) for path, _ in found)
    numbered = ((number, *pair) for number, pair in enumerate(_told_apart(found)))
    return tuple(each(lambda known: _input_file(*known), numbered, at_once=in_stores))


def _told_apart(found: list[tuple[AnyPath, str]]) -> list[tuple[AnyPath, str]]:
    """The files under names of which no two are the same.

    Where two were named in different folders, all are named below the folder that they share.
    """
    if len({name for _, name in found}) == len(found):
        return found
    whole = [_whole(path).split("/") for path, _ in found]
    local = [isinstance(path, Path) for path, _ in found]
    # Beside local files, those of a store keep their URI.
    shared = {
        is_local: len(
            _common_start([w for w, one in zip(whole, local, strict=True) if one == is_local])
        )
        for is_local in set(local)
    }
    if len(shared) == 2:
        shared[False] = 0
    return [
        (path, "/".join(parts[shared[is_local] :]))
        for (path, _), parts, is_local in zip(found, whole, local, strict=True)
    ]


def _whole(path: AnyPath) -> str:
    """The path from its root on; links are not followed, as their targets may have any name."""
    return str(path) if isinstance(path, RemotePath) else os.path.abspath(path)  # noqa: PTH100


def _common_start(paths: Sequence[list[str]]) -> list[str]:
    """The folders that all paths begin with."""
    first, last = min(paths)[:-1], max(paths)[:-1]
    pairs = zip(first, last, strict=False)
    return [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]


def as_list(named: Iterable[Named]) -> list[Named]:
    """What was named, one by one; a glob's paths can be looked at once only."""
    if isinstance(named, str | os.PathLike | RemotePath):
        raise InvalidOption(f"inputs is one path, {as_path(named)}, but must be a list of paths")
    if not isinstance(named, Iterable):
        raise InvalidOption(f"inputs is {named!r} but must be a list of paths")
    return list(named)


def _identity(path: AnyPath) -> object:
    if isinstance(path, RemotePath):
        return str(path)
    return path.stat().st_dev, path.stat().st_ino


def _looked_up(named: Named, out: AnyPath | None) -> list[tuple[AnyPath, str]]:
    try:
        return list(_behind(named, out))
    except StorageError:
        raise
    except OSError as error:  # a name that no file can have, a folder that may not be read
        raise InvalidOption(f"{named} cannot be looked up: {error.strerror}") from error


def _behind(named: Named, out: AnyPath | None) -> Iterator[tuple[AnyPath, str]]:
    """(path, name) of every file behind one argument."""
    path = as_path(named)
    text = str(named) if isinstance(path, Path) else str(path)
    if path.is_dir():
        yield from _in_folder(path)
    elif path.exists():
        yield path, path.name
    elif glob.has_magic(text):
        yield from _matching(path, text, out)
    else:
        if isinstance(path, RemotePath):
            path.require_bucket()
        raise InvalidOption(f"there is no file or folder {text}")


def _matching(pattern: AnyPath, text: str, out: AnyPath | None) -> Iterator[tuple[AnyPath, str]]:
    root: AnyPath
    found: Sequence[AnyPath]
    if isinstance(pattern, RemotePath):
        root, found = matching(pattern)
    else:
        root = Path(*_until_magic(pattern.parts))
        paths = [Path(p) for p in glob.glob(text, recursive=True)]  # noqa: PTH207 - absolute too
        found = [path for path in paths if path.is_file()]
    apart = found if out is None else [path for path in found if not lies_inside(path, out)]
    files = {_name(path, root): path for path in apart}
    if not files:
        raise InvalidOption(f"no file matches {text!r}")
    yield from ((files[name], name) for name in sorted(files))


def _until_magic(parts: tuple[str, ...]) -> Iterator[str]:
    for part in parts:
        if glob.has_magic(part):
            return
        yield part


def _in_folder(folder: AnyPath) -> Iterator[tuple[AnyPath, str]]:
    if (folder / "dataset_dict.json").is_file():
        raise InvalidOption(f"{folder} holds the splits of a dataset; name the folder of one")
    if (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file():
        yield from _saved_dataset(folder)
        return
    files = {_name(path, folder): path for path in _files_below(folder)}
    shown = sorted(name for name in files if not _is_hidden(name))
    known = [name for name in shown if name.lower().endswith(tuple(_IN_FOLDERS))]
    if not known:
        raise InvalidOption(f"{folder} holds no file that ends with {', '.join(_IN_FOLDERS)}")
    if len(known) < len(shown):
        _warn_of_others(folder, sorted(set(shown) - set(known)), len(shown))
    yield from ((files[name], name) for name in known)


def _warn_of_others(folder: AnyPath, names: Sequence[str], total: int) -> None:
    warnings.warn(
        f"{folder}: {len(names)} of {total} files left unread ({', '.join(names[:3])}); what is "
        f"read ends with {', '.join(_IN_FOLDERS)}",
        stacklevel=2,
    )


def _files_below(folder: AnyPath) -> Iterator[AnyPath]:
    if isinstance(folder, RemotePath):
        yield from folder.files_below()
        return
    for path in folder.rglob("*"):
        if path.is_symlink() and path.is_dir() and not _is_hidden(_name(path, folder)):
            raise InvalidOption(
                f"{path} is a link to a folder, which is not followed: name the folder itself as "
                "an input beside, or take the link away"
            )
        if path.is_file():
            yield path


def _saved_dataset(folder: AnyPath) -> Iterator[tuple[AnyPath, str]]:
    """The Arrow files of `Dataset.save_to_disk`, in the order of its rows."""
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        names = [str(entry["filename"]) for entry in state["_data_files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFile(f"{folder / 'state.json'} names no data files: {error!r}") from error
    for name in names:
        if PurePosixPath(name).name != name or not (folder / name).is_file():
            raise CorruptFile(f"{folder / 'state.json'} names {name!r}, which is not in the folder")
        yield folder / name, name


def _name(path: AnyPath, root: AnyPath) -> str:
    return path.relative_to(root).as_posix()  # type: ignore[arg-type] # of the same kind


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "_")) for part in name.split("/"))


def _kind(path: AnyPath) -> str | None:
    name = path.name.lower()
    return next((kind for suffix, kind in KINDS.items() if name.endswith(suffix)), None)


def _input_file(number: int, path: AnyPath, name: str) -> InputFile:
    kind = _kind(path)
    if kind is None:
        raise InvalidOption(f"{path} is of no known kind; known are {', '.join(KINDS)}")
    if not isinstance(path, RemotePath) and not path.is_file():
        raise InvalidOption(f"{path} is no regular file")
    try:
        fingerprint, size, changed_at = _fingerprint(path)
    except StorageError:
        raise
    except OSError as error:
        raise InvalidOption(f"{path} cannot be read: {error.strerror}") from error
    return InputFile(
        number=number,
        path=path,
        name=name,
        kind=kind,
        size=size,
        fingerprint=fingerprint,
        changed_at=changed_at,
    )


def _fingerprint(path: AnyPath) -> tuple[str, int, int]:
    """The fingerprint, the size and the time of the last change."""
    if isinstance(path, RemotePath):
        with path.open_ranges() as ranges:
            now = path.stat()
            return _digest(ranges, now.st_size), now.st_size, now.st_mtime_ns
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        return _digest(file, stat.st_size), stat.st_size, stat.st_mtime_ns


def _digest(file: BinaryIO, size: int) -> str:
    digest = hashlib.sha256(str(size).encode())
    if size <= _BLOCK * _NUM_BLOCKS:
        digest.update(file.read())
    else:
        for block in range(_NUM_BLOCKS):
            file.seek((size - _BLOCK) * block // (_NUM_BLOCKS - 1))
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()
