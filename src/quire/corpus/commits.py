"""Commits: one small file for each finished shard, until the manifest lists them all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from quire.corpus.output import DATA, file_sizes
from quire.corpus.shards import shard_name
from quire.errors import QuireError, WorkerError
from quire.files import sha256_of, whole_file
from quire.formats.format import BadRecord
from quire.ledger import Ledger
from quire.seals import FORMAT_VERSION, checksum
from quire.storage import AnyPath, RemotePath, each


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """One finished shard: its origin and its content."""

    run: str
    """The run that wrote it, as in `PartitionJob.run`."""
    partition: int
    piece: int
    last: bool
    """Whether it is the last shard of its partition."""
    sha256: str
    size: int
    rows: int
    """Records: packed rows, or documents if the output is index-only."""
    tokens: int
    content: int
    """Tokens without BOS; EOS is content."""
    ledger: Ledger
    bad: tuple[BadRecord, ...]

    @property
    def name(self) -> str:
        """The shard's file name."""
        return shard_name(self.partition, self.piece)

    @property
    def file(self) -> str:
        """The shard's path relative to the output."""
        return f"{DATA}/{self.name}"


def write_commit(folder: AnyPath, commit: Commit) -> None:
    """Write a commit; its shard must be complete."""
    plain = asdict(commit) | {"ledger": commit.ledger.to_dict(), "version": FORMAT_VERSION}
    plain["bad"] = [_plain_record(record) for record in commit.bad]
    plain["checksum"] = checksum(plain)  # a damaged number may still be valid JSON
    with whole_file(folder / f"{commit.name}.json") as temporary:
        temporary.write_bytes(json.dumps(plain, sort_keys=True).encode())


def _plain_record(record: BadRecord) -> dict[str, Any]:
    """The fields, without a kind that the record fits if there is none."""
    plain = asdict(record)
    return plain if record.fits else {name: plain[name] for name in plain if name != "fits"}


def read_commits(folder: AnyPath, out: AnyPath, run: str, num_files: int) -> list[Commit]:
    """The commits of this run whose shards have the committed bytes, in order.

    Commits that are damaged, belong to another run, or name a file that is not among the inputs are
    removed, and their shards are packed again. In a store, shards are not read for this: an upload
    becomes visible as a whole and before its commit, so the size is enough.
    """
    found = []
    files: list[AnyPath] = sorted(folder.glob("shard-*.json"), key=str)
    is_remote, sizes = isinstance(out, RemotePath), file_sizes(out / DATA)
    read = each(_read, files, at_once=is_remote)
    for file, commit in zip(files, read, strict=True):
        if (
            commit is not None
            and commit.run == run
            and all(record.file < num_files for record in commit.bad)
            and sizes.get(commit.name) == commit.size
            and (is_remote or sha256_of(out / commit.file) == commit.sha256)
        ):
            found.append(commit)
        else:
            file.unlink()
    return found


def require_present(commits: Sequence[Commit], out: AnyPath) -> None:
    """Raise unless this process sees every committed shard in the output.

    A worker may have written to another disk under the same path, or to its own memory.
    """
    there = file_sizes(out / DATA)
    missing = [commit.file for commit in commits if there.get(commit.name) != commit.size]
    if missing:
        raise WorkerError(
            f"{len(missing)} of {len(commits)} committed shards are not in {out}, first "
            f"{missing[0]}\nchoose an output that all workers see under the same path"
        )


def finished(commits: Iterable[Commit]) -> set[int]:
    """The numbers of the partitions that are complete."""
    pieces: dict[int, set[int]] = {}
    ends: dict[int, int] = {}
    for commit in commits:
        pieces.setdefault(commit.partition, set()).add(commit.piece)
        if commit.last:
            ends[commit.partition] = commit.piece
    return {number for number, end in ends.items() if pieces[number] == set(range(end + 1))}


_KINDS = {"str": (str,), "int": (int,), "bool": (bool,), "int | None": (int, type(None))}


def _typed(plain: dict[str, Any], kind: type[Commit] | type[BadRecord]) -> dict[str, Any]:
    """The fields, if each has its declared type and no number is negative."""
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
