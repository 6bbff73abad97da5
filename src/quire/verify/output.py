"""Recount a packed dataset from its files alone.

Nothing here is shared with the code that wrote it: a mistake made there is not made again here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile
from quire.verify.recount import Recount, recount_rows

_SHARD = re.compile(r"data/shard-\d{5,}-\d{3,}\.parquet")
_NEEDED = ("format", "options", "inputs", "rows", "tokens", "ledger", "shards", "bad_records")
_MOST_PROBLEMS = 20


@dataclass(kw_only=True)
class OutputReport:
    """What was counted, and what is wrong; nothing wrong means that the output is whole."""

    path: Path
    shards: int = 0
    rows: int = 0
    tokens: int = 0
    documents: int = 0
    """Of which a token was found; 0 where the output does not say where fragments come from."""
    compared: int | None = None
    """Documents that were read again from the inputs and found token by token."""
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_json(self) -> str:
        """One line of JSON."""
        counts = {
            name: getattr(self, name)
            for name in ("shards", "rows", "tokens", "documents", "compared", "problems")
        }
        return json.dumps({"path": str(self.path), "ok": self.ok, **counts})


def verify_output(path: str | Path) -> OutputReport:
    """Recount every file of a packed dataset against its manifest.

    Checksums, boundaries, capacities, totals, the ledger's equation, and that no two fragments hold
    the same tokens of a document. One shard is in memory at a time.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    try:
        return _verify(folder, manifest)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CorruptFile(
            f"{folder / 'manifest.json'} is damaged: {type(error).__name__} {error}"
        ) from error


def _verify(folder: Path, manifest: Mapping[str, Any]) -> OutputReport:
    report = OutputReport(path=folder)
    report.problems += _strangers(folder, manifest)
    last_document = -1
    totals: list[Recount] = []
    for shard in manifest["shards"]:
        try:
            found = _recount(folder, shard, manifest)
        except CorruptFile as error:
            report.problems.append(str(error))
            continue
        if found.first_document is not None and found.first_document <= last_document:
            found.problems.append("holds documents that an earlier shard holds, too")
        last_document = max(last_document, found.last_document or 0)
        report.problems += [f"{shard['file']}: {p}" for p in found.problems[:_MOST_PROBLEMS]]
        totals.append(found)
    report.shards = len(totals)
    report.rows = sum(found.rows for found in totals)
    report.tokens = sum(found.tokens for found in totals)
    report.documents = sum(found.documents or 0 for found in totals)
    report.problems += _totals(report, manifest)
    return report


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, if it is one, and names nothing outside of its folder."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise CorruptFile(f"{folder} has no manifest.json: it is unfinished, or no output of quire")
    try:
        manifest = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{path} is not JSON: {error}") from error
    missing = [name for name in _NEEDED if not isinstance(manifest, dict) or name not in manifest]
    if missing:
        raise CorruptFile(f"{path} lacks {', '.join(missing)}; it is damaged")
    said = manifest["format"]
    if not isinstance(said, dict) or (said.get("name"), said.get("version")) != ("quire.packed", 1):
        raise CorruptFile(
            f"{path} has format {said!r:.80}, but this quire reads version 1; upgrade"
        )
    if not isinstance(manifest["shards"], list):
        raise CorruptFile(f"{path}: shards is no list; it is damaged")
    for shard in manifest["shards"]:
        _require_inside(path, shard)
    return dict(manifest)


def _require_inside(path: Path, shard: object) -> None:
    name = shard.get("file") if isinstance(shard, dict) else None
    if not isinstance(name, str) or not _SHARD.fullmatch(name):
        raise CorruptFile(f"{path} names a shard {name!r:.80}, which is no name of a shard")
    if (path.parent / name).is_symlink():
        raise CorruptFile(f"{path.parent / name} is a link; a shard is a file of its folder")


def _strangers(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Files that should not be there: left over, or put there by somebody."""
    known = {"manifest.json", *(shard["file"] for shard in manifest["shards"])}
    if manifest["bad_records"].get("count"):
        known.add("bad_records.jsonl")
    inside = list((folder / "data").iterdir()) if (folder / "data").is_dir() else []
    for path in sorted([*folder.iterdir(), *inside]):
        name = path.relative_to(folder).as_posix()
        left_over = name.endswith(".tmp") or name == ".quire"
        if (path in inside or path.suffix == ".parquet" or left_over) and name not in known:
            yield f"{name} is there, but the manifest does not know it"


def _recount(folder: Path, shard: Mapping[str, Any], manifest: Mapping[str, Any]) -> Recount:
    path = folder / shard["file"]
    if not path.is_file():
        raise CorruptFile(f"{shard['file']} is missing")
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    if digest.hexdigest() != shard.get("sha256"):
        raise CorruptFile(f"{shard['file']} has other bytes than were written: its SHA-256 differs")
    try:
        rows = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(f"{shard['file']} cannot be read: {error}") from error
    found = recount_rows(rows, manifest["options"], shard["ledger"])
    for name, value in (("rows", found.rows), ("tokens", found.tokens)):
        if shard.get(name) != value:
            found.problems.append(f"has {value} {name} but the manifest says {shard.get(name)}")
    if shard.get("bytes") != path.stat().st_size:
        found.problems.append(f"has {path.stat().st_size} bytes, not {shard.get('bytes')}")
    return found


def _totals(report: OutputReport, manifest: Mapping[str, Any]) -> Iterator[str]:
    for name in ("rows", "tokens"):
        found = getattr(report, name)
        if manifest[name] != found:
            yield f"all shards have {found} {name}, the manifest says {manifest[name]}"
    added: dict[tuple[str, ...], int] = {}
    for shard in manifest["shards"]:
        for key, value in _flat(shard["ledger"]):
            added[key] = added.get(key, 0) + value
    if {key: n for key, n in added.items() if n} != {
        key: n for key, n in _flat(manifest["ledger"]) if n
    }:
        yield "the ledgers of the shards do not add up to the ledger of all"
    yield from _bad_records(report.path, manifest)


def _flat(ledger: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[Any, int]]:
    for key, value in ledger.items():
        if isinstance(value, Mapping):
            yield from _flat(value, (*path, key))
        else:
            yield (*path, key), value


def _bad_records(folder: Path, manifest: Mapping[str, Any]) -> Iterator[str]:
    said = manifest["bad_records"]
    dropped = manifest["ledger"]["documents"]["dropped"].get("bad_record", 0)
    if said.get("count") != dropped:
        yield f"{said.get('count')} bad records are listed but {dropped} were dropped"
    if not said.get("count"):
        return
    path = folder / "bad_records.jsonl"
    data = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(data).hexdigest() != said.get("sha256"):
        yield "bad_records.jsonl is missing or has other bytes than were written"
    elif len(data.splitlines()) != said["count"]:
        yield f"bad_records.jsonl has {len(data.splitlines())} lines, not {said['count']}"
