"""Recount a packed dataset from its files alone.

Nothing here is shared with the code that wrote it: a mistake made there is not made again here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile, QuireError, StorageError
from quire.storage import AnyPath, Named, as_path
from quire.verify.files import checked
from quire.verify.indexed import recount_plan, recount_shard
from quire.verify.manifest import changed_since, is_indexed, read_manifest
from quire.verify.mapped import mapped_problems
from quire.verify.recount import Ints, Recount, recount_rows

_MOST_PROBLEMS = 20


@dataclass(kw_only=True)
class OutputReport:
    """What was counted, and what is wrong; nothing wrong means that the output is whole."""

    path: AnyPath
    shards: int = 0
    plans: int = 0
    """Where documents and plans stand apart; rows and tokens are then those of the first plan."""
    rows: int = 0
    tokens: int = 0
    documents: int = 0
    """Of which a token was found; 0 where the output does not say where fragments come from."""
    compared: int | None = None
    """Documents that were read again from the inputs and found token by token."""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    """What the manifest counts, which is recounted as far as the files tell."""
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_json(self) -> str:
        """One line of JSON."""
        counts = {
            name: getattr(self, name)
            for name in ("shards", "plans", "rows", "tokens", "documents", "compared", "problems")
        }
        counts["ledger"] = self.ledger
        return json.dumps({"path": str(self.path), "ok": self.ok, **counts})


def verify_output(path: Named) -> OutputReport:
    """Recount every file of a packed dataset against its manifest.

    Checksums, boundaries, capacities, totals, the ledger's equation, and that no two fragments hold
    the same tokens of a document. One shard is in memory at a time.
    """
    folder = as_path(path)
    manifest = read_manifest(folder)
    try:
        return _verify(folder, manifest)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, QuireError):
            raise
        raise CorruptFile(
            f"{folder / 'manifest.json'} is damaged: {type(error).__name__} {error}"
        ) from error


def _verify(folder: AnyPath, manifest: Mapping[str, Any]) -> OutputReport:
    report = OutputReport(path=folder, ledger=manifest["ledger"])
    report.problems += [*changed_since(manifest), *_strangers(folder, manifest)]
    if is_indexed(manifest):
        _verify_indexed(report, manifest)
        return report

    def count(shard: Mapping[str, Any], rows: pa.Table) -> Recount:
        return recount_rows(rows, manifest["options"], shard["ledger"])

    totals = _verify_shards(report, manifest, "rows", count)
    report.rows = sum(found.rows for found in totals)
    report.tokens = sum(found.tokens for found in totals)
    report.documents = sum(found.documents or 0 for found in totals)
    report.problems += _totals(report, manifest)
    report.problems += _bad_records(report.path, manifest)
    return report


def _verify_shards(
    report: OutputReport,
    manifest: Mapping[str, Any],
    records: str,
    count: Callable[[Mapping[str, Any], pa.Table], Recount],
) -> list[Recount]:
    """What every readable shard holds; one is in memory at a time."""
    last_document = -1
    totals: list[Recount] = []
    for shard in manifest["shards"]:
        try:
            table = _read_shard(report.path, shard)
            found = count(shard, table)
            found.problems += mapped_problems(report.path, manifest, shard, table)
        except CorruptFile as error:
            report.problems.append(str(error))
            continue
        for name, value in ((records, found.rows), ("tokens", found.tokens)):
            if shard.get(name) != value:
                found.problems.append(f"has {value} {name} but the manifest says {shard.get(name)}")
        if found.first_document is not None and found.first_document <= last_document:
            found.problems.append("holds documents that an earlier shard holds, too")
        last_document = max(last_document, found.last_document or 0)
        report.problems += [f"{shard['file']}: {p}" for p in found.problems[:_MOST_PROBLEMS]]
        totals.append(found)
    report.shards = len(totals)
    return totals


def _verify_indexed(report: OutputReport, manifest: Mapping[str, Any]) -> None:
    """The documents, then every plan against their lengths."""
    lengths: list[Ints] = [np.zeros(0, dtype=np.int64)]

    def count(shard: Mapping[str, Any], documents: pa.Table) -> Recount:
        found, of_shard = recount_shard(documents, shard["ledger"], manifest["options"])
        lengths.append(of_shard)
        if manifest["documents"]["has_labels"] is not ("labels" in documents.column_names):
            found.problems.append("has labels where the manifest has none, or the other way round")
        return found

    totals = _verify_shards(report, manifest, "documents", count)
    about = manifest["documents"]
    for name, value in (
        ("count", sum(found.rows for found in totals)),
        ("tokens", sum(found.tokens for found in totals)),
    ):
        if about[name] != value:
            report.problems.append(f"documents: {name} is {value}, not {about[name]}")
    every = np.concatenate(lengths)
    for number, entry in enumerate(manifest["plans"]):
        try:
            found = recount_plan(report.path, entry, every, manifest)
        except CorruptFile as error:
            report.problems.append(str(error))
            continue
        report.plans += 1
        report.problems += [f"{entry['file']}: {p}" for p in found.problems[:_MOST_PROBLEMS]]
        if number == 0:
            report.rows, report.tokens = found.rows, found.tokens
            report.documents = found.documents or 0
    report.problems += _first_plan(manifest)
    report.problems += _bad_records(report.path, manifest)


def _first_plan(manifest: Mapping[str, Any]) -> Iterator[str]:
    first = manifest["plans"][0]
    for name in ("rows", "tokens", "ledger"):
        if manifest[name] != first[name]:
            yield f"{name} of the manifest are not those of its first plan"
    if any(manifest["options"][name] != value for name, value in first["options"].items()):
        yield "options of the manifest are not those of its first plan"
    names = [entry["name"] for entry in manifest["plans"]]
    if len(set(names)) != len(names) or any(
        entry["file"] != f"plans/{entry['name']}.arrow" for entry in manifest["plans"]
    ):
        yield "plans of the manifest have names that are not theirs alone"


def _strangers(folder: AnyPath, manifest: Mapping[str, Any]) -> Iterator[str]:
    """Files that should not be there: left over, or put there by somebody."""
    entries = [*manifest["shards"], *manifest.get("plans", [])]
    known = {"manifest.json", *(entry["file"] for entry in entries)}
    if manifest["bad_records"].get("count"):
        known.add("bad_records.jsonl")
    inside = [path for name in ("data", "plans") for path in _listed(folder / name)]
    for path in [*_listed(folder), *inside]:
        name = path.relative_to(folder).as_posix()  # type: ignore[arg-type] # of the same kind
        left_over = name.endswith(".tmp")
        if name == ".quire":
            yield (
                ".quire is there: a writer is at work, or was stopped; give its command again "
                "(`quire pack … --resume`, `quire replan …`), which takes it away"
            )
        elif (path in inside or path.suffix == ".parquet" or left_over) and name not in known:
            yield f"{name} is there, but the manifest does not know it"


def _listed(folder: AnyPath) -> list[AnyPath]:
    return sorted(folder.glob("*"), key=str)


def _read_shard(folder: AnyPath, shard: Mapping[str, Any]) -> pa.Table:
    try:
        with checked(folder, shard) as path:
            return pq.read_table(path, partitioning=None)
    except StorageError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(f"{shard['file']} cannot be read: {error}") from error


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


def _flat(ledger: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[Any, int]]:
    for key, value in ledger.items():
        if isinstance(value, Mapping):
            yield from _flat(value, (*path, key))
        else:
            yield (*path, key), value


def _bad_records(folder: AnyPath, manifest: Mapping[str, Any]) -> Iterator[str]:
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
