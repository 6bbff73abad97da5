"""What is known of a shard that stands: one small file each, until the manifest holds them all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from quire.corpus.output import DATA
from quire.corpus.shards import shard_name
from quire.errors import QuireError, WorkerError
from quire.files import sha256_of, whole_file
from quire.formats.format import BadRecord
from quire.ledger import Ledger
from quire.seals import FORMAT_VERSION, checksum
from quire.storage import AnyPath, RemotePath, each


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """One shard: where it comes from, what it holds."""

    run: str
    """The terms under which it was packed, as `PartitionJob.run`."""
    partition: int
    piece: int
    last: bool
    """Whether the partition ends with it."""
    sha256: str
    size: int
    rows: int
    """Records: packed rows, or documents where the plan stands apart."""
    tokens: int
    ledger: Ledger
    bad: tuple[BadRecord, ...]

    @property
    def name(self) -> str:
        """The shard's name."""
        return shard_name(self.partition, self.piece)

    @property
    def file(self) -> str:
        """Where in the output it stands."""
        return f"{DATA}/{self.name}"


def write_commit(folder: AnyPath, commit: Commit) -> None:
    """Put the commit beside the others; the shard must stand already."""
    plain = asdict(commit) | {"ledger": commit.ledger.to_dict(), "version": FORMAT_VERSION}
    plain["checksum"] = checksum(plain)  # a number that changed on the disk still is a number
    with whole_file(folder / f"{commit.name}.json") as temporary:
        temporary.write_bytes(json.dumps(plain, sort_keys=True).encode())


def read_commits(folder: AnyPath, out: AnyPath, run: str, num_files: int) -> list[Commit]:
    """All commits of this run whose shards have the bytes that were committed, in order.

    What does not hold, belongs to another run, or names a file that is not among the inputs, is
    removed, to be done again. In a store a shard is
    not read again for that: it appeared whole, before its commit, so one of the right size is the
    one committed.
    """
    held = []
    files: list[AnyPath] = sorted(folder.glob("shard-*.json"), key=str)
    sizes = (out / DATA).sizes() if isinstance(out, RemotePath) else None
    read = each(_read, files, at_once=sizes is not None)
    for file, commit in zip(files, read, strict=True):
        if (
            commit is not None
            and commit.run == run
            and all(record.file < num_files for record in commit.bad)
            and _stands(commit, out, sizes)
        ):
            held.append(commit)
        else:
            file.unlink()
    return held


def require_standing(commits: Sequence[Commit], out: AnyPath) -> None:
    """Raise unless every shard that was committed stands in the output as this process sees it.

    A worker may have written to a folder of the same name on another disk, or to its own memory.
    """
    there = (out / DATA).sizes() if isinstance(out, RemotePath) else None
    missing = [commit.file for commit in commits if _size(commit, out, there) != commit.size]
    if missing:
        raise WorkerError(
            f"of {len(commits)} shards that were committed, {len(missing)} are not in {out}, first "
            f"{missing[0]}\nall workers must see it at the same place; put it where they do"
        )


def _size(commit: Commit, out: AnyPath, there: Mapping[str, int] | None) -> int | None:
    if there is not None:
        return there.get(commit.name)
    try:
        return (out / commit.file).stat().st_size
    except FileNotFoundError:
        return None


def _stands(commit: Commit, out: AnyPath, sizes: Mapping[str, int] | None) -> bool:
    if sizes is not None:
        return sizes.get(commit.name) == commit.size
    return sha256_of(out / commit.file) == commit.sha256


def finished(commits: Iterable[Commit]) -> set[int]:
    """The partitions of which every shard stands."""
    pieces: dict[int, set[int]] = {}
    ends: dict[int, int] = {}
    for commit in commits:
        pieces.setdefault(commit.partition, set()).add(commit.piece)
        if commit.last:
            ends[commit.partition] = commit.piece
    return {number for number, end in ends.items() if pieces[number] == set(range(end + 1))}


_KINDS = {"str": (str,), "int": (int,), "bool": (bool,), "int | None": (int, type(None))}


def _typed(plain: dict[str, Any], kind: type[Commit] | type[BadRecord]) -> dict[str, Any]:
    """The fields, if each has the type that is declared, and no number is below zero."""
    declared = {field.name: str(field.type) for field in fields(kind)}
    for name, value in plain.items():
        types = _KINDS.get(declared.get(name, ""), ())
        if type(value) not in types or (type(value) is int and not 0 <= value < 2**63):
            raise ValueError(f"{name} is {value!r:.80} but must be {declared.get(name)}")
    return plain


def _read(file: AnyPath) -> Commit | None:
    try:
        plain = json.loads(file.read_bytes().decode())
        if plain.pop("checksum") != checksum(plain) or plain.pop("version") != FORMAT_VERSION:
            return None
        bad = tuple(BadRecord(**_typed(record, BadRecord)) for record in plain.pop("bad"))
        ledger = Ledger.from_dict(plain.pop("ledger")).check()
        commit = Commit(**_typed(plain, Commit), bad=bad, ledger=ledger)
        return commit if file.name == f"{commit.name}.json" else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, QuireError):
        return None
