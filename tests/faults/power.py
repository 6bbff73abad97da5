"""What a disk holds when the power fails: what was synced, and nothing else is promised."""

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
    """A folder's entries now, and as they were last synced."""

    now: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)


Node: TypeAlias = File | Folder


def entries(disk: Path) -> Folder:
    """The disk as it stands, all of it synced."""
    there = {
        path.name: entries(path) if path.is_dir() else File(path.read_bytes())
        for path in disk.iterdir()
    }
    return Folder(dict(there), dict(there))


def lose_power(disk: Path, before: Folder, journal: Path, *, names_survive: bool) -> None:
    """Put the disk into the state that a power failure may leave behind the journal's operations.

    Content that was not synced is gone. Names (new, changed or removed entries of folders) that
    were not synced are gone, too; or they survive, and zeros are what their files hold: file
    systems are known to do both.
    """
    after = replayed(before, disk, operations(journal))
    sizes = {path: path.stat().st_size for path in disk.rglob("*") if path.is_file()}
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    _write_out(after, disk, sizes if names_survive else None)


def operations(journal: Path) -> Iterator[dict]:
    """What was done, in order; the content that was synced with it."""
    if not (journal / "journal.jsonl").exists():
        return
    for line in (journal / "journal.jsonl").read_text().splitlines():
        done = json.loads(line)
        if "copy" in done:
            done["content"] = (journal / done["copy"]).read_bytes()
        yield done


def replayed(root: Folder, disk: Path, journal: Iterator[dict]) -> Folder:
    """The same folder, behind these operations."""
    for done in journal:
        if "failed" in done:
            continue
        place = Path(done["path"]).relative_to(disk)
        kind = done["operation"]
        if kind == "fsync":
            _sync(_find(root, place), done)
            continue
        folder = _find(root, place.parent)
        if kind == "mkdir":
            folder.now[place.name] = Folder()
        elif kind == "open" and (done["new"] or done["cut"]):
            folder.now[place.name] = File()
        elif kind in ("unlink", "rmdir"):
            del folder.now[place.name]
        elif kind == "rename":
            to = Path(done["to"]).relative_to(disk)
            _find(root, to.parent).now[to.name] = folder.now.pop(place.name)
    return root


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


def _write_out(folder: Folder, at: Path, sizes: dict[Path, int] | None) -> None:
    for name, node in (folder.synced if sizes is None else folder.now).items():
        path = at / name
        if isinstance(node, Folder):
            path.mkdir()
            _write_out(node, path, sizes)
        else:
            size = len(node.synced) if sizes is None else sizes.get(path, 0)
            path.write_bytes(node.synced.ljust(size, b"\0"))
