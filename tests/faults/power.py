"""What a disk holds after a power failure: only what was synced is guaranteed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias


@dataclass
class File:
    """A file's content as it was last synced."""

    synced: bytes = b""


@dataclass
class Folder:
    """A folder's current entries, and those last synced."""

    now: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)


Node: TypeAlias = File | Folder


def entries(disk: Path) -> Folder:
    """The current disk, with everything synced."""
    there = {
        path.name: entries(path) if path.is_dir() else File(path.read_bytes())
        for path in disk.iterdir()
    }
    return Folder(dict(there), dict(there))


def lose_power(disk: Path, before: Folder, journal: Path, *, kind: str) -> None:
    """Put the disk into a state that a power failure after the journal's operations may leave.

    Content that was not synced is gone. Names (new, changed or removed entries of folders) that
    were not synced are gone, too (``unsynced``); or they survive, and zeros are what their files
    hold (``unsynced-data``); or all survive but the last one (``unsynced-last``): file systems are
    known to do each.
    """
    disk_now, unsynced = replayed(before, disk, operations(journal))
    sizes = None if kind == "unsynced" else dict(_sizes(disk_now, disk))
    if kind == "unsynced-last" and unsynced:
        for folder, name, node in reversed(unsynced[-1]):
            _set(folder, name, node)
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    _write_out(disk_now, disk, sizes)


def operations(journal: Path) -> Iterator[dict]:
    """The operations in order, with the content that was synced."""
    if not (journal / "journal.jsonl").exists():
        return
    for line in (journal / "journal.jsonl").read_text().splitlines():
        done = json.loads(line)
        if "copy" in done:
            done["content"] = (journal / done["copy"]).read_bytes()
        yield done


Change: TypeAlias = list[tuple[Folder, str, Node | None]]
"""The previous content of the names that an operation changed; None if there was none."""


def replayed(root: Folder, disk: Path, journal: Iterator[dict]) -> tuple[Folder, list[Change]]:
    """The folder after these operations, and the changes of names that were not synced."""
    unsynced: list[Change] = []
    for done in journal:
        if "failed" in done:
            continue
        place = Path(done["path"]).relative_to(disk)
        if done["operation"] == "fsync":
            node = _find(root, place)
            _sync(node, done)
            unsynced = [change for change in unsynced if any(f is not node for f, _, _ in change)]
        elif change := _changed(root, place, done, disk):
            unsynced.append(change)
    return root, unsynced


def _changed(root: Folder, place: Path, done: dict, disk: Path) -> Change:
    kind, folder = done["operation"], _find(root, place.parent)
    before = folder.now.get(place.name)
    if kind == "mkdir":
        _set(folder, place.name, Folder())
    elif kind == "open" and (done["new"] or done["cut"]):
        _set(folder, place.name, File())
    elif kind in ("unlink", "rmdir"):
        _set(folder, place.name, None)
    elif kind == "rename":
        to = Path(done["to"]).relative_to(disk)
        target = _find(root, to.parent)
        change = [(folder, place.name, before), (target, to.name, target.now.get(to.name))]
        _set(folder, place.name, None)
        _set(target, to.name, before)
        return change
    else:
        return []
    return [(folder, place.name, before)]


def _set(folder: Folder, name: str, node: Node | None) -> None:
    if node is None:
        folder.now.pop(name, None)
    else:
        folder.now[name] = node


def _find(root: Folder, place: Path) -> Node:
    node: Node = root
    for part in place.parts:
        node = node.now[part]
    return node


def _sync(node: Node, done: dict) -> None:
    if isinstance(node, Folder):
        node.synced = dict(node.now)
    else:
        node.synced = done["content"]


def _sizes(folder: Folder, at: Path) -> Iterator[tuple[int, int]]:
    """The current size of each file, by inode."""
    for name, node in folder.now.items():
        if isinstance(node, Folder):
            yield from _sizes(node, at / name)
        elif (at / name).is_file():
            yield id(node), (at / name).stat().st_size


def _write_out(folder: Folder, at: Path, sizes: dict[int, int] | None) -> None:
    for name, node in (folder.synced if sizes is None else folder.now).items():
        path = at / name
        if isinstance(node, Folder):
            path.mkdir()
            _write_out(node, path, sizes)
        else:
            size = 0 if sizes is None else sizes.get(id(node), 0)
            path.write_bytes(node.synced.ljust(size, b"\0"))
