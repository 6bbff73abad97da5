"""`verify_output`: recount every file of a packed dataset, and compare with its manifest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile, QuireError, StorageError
from quire.printable import counted
from quire.progress import Advance, stage
from quire.storage import AnyPath, Named, as_path
from quire.verify.output.images import (
    COLUMNS,
    KINDS,
    UNREADABLE,
    image_problems,
    read_images,
    unchecked,
)
from quire.verify.output.in_place import recount_corpus
from quire.verify.output.manifest import (
    bad_record_problems,
    is_in_place,
    is_indexed,
    read_manifest,
    unlisted_files,
    verified_file,
)
from quire.verify.output.plans import recount_documents, recount_plan
from quire.verify.output.shards import (
    Ints,
    Recount,
    counts_eos,
    mapped_problems,
    read_fragments,
    recount_rows,
)

_MOST_PROBLEMS = 20


@dataclass(kw_only=True)
class OutputReport:
    """What was counted, and what is wrong; an output without problems is whole."""

    path: AnyPath
    shards: int = 0
    plans: int = 0
    """Plans of an index-only output, whose rows and tokens are those of its first plan."""
    rows: int = 0
    tokens: int = 0
    documents: int = 0
    """Documents with at least one token in a row; 0 if the output does not record its sources."""
    compared: int | None = None
    """Documents that were compared with the inputs, token by token."""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    """The ledger of the manifest, which is recounted as far as the files allow."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What the check could not do independently of the packer."""

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def to_json(self) -> str:
        """The report as one line of JSON."""
        return json.dumps({**vars(self), "path": str(self.path), "ok": self.ok})


def verify_output(path: Named, *, image_root: Named | None = None) -> OutputReport:
    """Recount every file of a packed dataset and compare it with the manifest.

    Checks checksums, boundaries, row lengths, totals, the equation of the ledger, and that no two
    fragments hold the same tokens of a document. One shard is in memory at a time. Images are
    hashed again; relative paths of those that are not embedded start at ``image_root``.
    """
    folder = as_path(path)
    try:
        manifest = read_manifest(folder)
        report = OutputReport(path=folder, ledger=manifest["ledger"])
        report.problems += manifest["checksum_problems"]
        report.problems += unlisted_files(folder, manifest)
        if manifest["options"].get("record_kind") in KINDS:
            images = None if image_root is None else Path(str(image_root))
            _recount_samples(report, manifest, images)
        else:
            recount = _recount_index if is_indexed(manifest) else _recount_rows
            (_recount_in_place if is_in_place(manifest) else recount)(report, manifest)
        report.problems += bad_record_problems(folder, manifest)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, QuireError):
            raise
        raise CorruptFile(
            f"{folder / 'manifest.json'} is damaged: {type(error).__name__} {error}"
        ) from error
    return report


def _recount_samples(
    report: OutputReport, manifest: Mapping[str, Any], folder: Path | None
) -> None:
    """Every shard of samples with images, as rows, and their images."""
    options, num_unchecked, num_unread = manifest["options"], 0, 0

    def recount(shard: Mapping[str, Any], table: pa.Table) -> Recount:
        nonlocal num_unchecked, num_unread
        name, tokens = shard["file"], table.drop_columns(COLUMNS)
        found = recount_rows(tokens, options, shard)
        _, fragments = read_fragments(name, tokens, has_sources=bool(options["keep_sources"]))
        images = read_images(name, table, fragments.per_row)
        problems = [*image_problems(name, table, fragments, images, options, folder)]
        found.problems += problems
        num_unread += sum(UNREADABLE in problem for problem in problems)
        num_unchecked += unchecked(images.files, folder)
        return found

    _recount_rows(report, manifest, recount)
    if num_unchecked:
        report.notes.append(
            f"{counted(num_unchecked, 'image')} with relative paths not compared with the files; "
            "name the folder that the paths start at (--image-root)"
        )
    if num_unread and folder is not None:
        report.notes.append(
            f"{counted(num_unread, 'image')} cannot be read; relative paths start at {folder}: if "
            "that is the wrong folder, name the right one (--image-root)"
        )


def _recount_rows(
    report: OutputReport,
    manifest: Mapping[str, Any],
    recount: Callable[[Mapping[str, Any], pa.Table], Recount] | None = None,
) -> None:
    """Every shard of rows, and their totals."""

    def recount_text(shard: Mapping[str, Any], table: pa.Table) -> Recount:
        return recount_rows(table, manifest["options"], shard)

    recount, content = recount or recount_text, 0
    for found in _recount_shards(report, manifest, "rows", recount):
        report.rows += found.rows
        report.tokens += found.tokens
        report.documents += found.documents
        content += found.content
    if manifest.get("content", content) != content:
        total = counted(content, "content token")
        report.problems.append(f"the shards have {total}, the manifest says {manifest['content']}")
    for name in ("rows", "tokens"):
        if manifest[name] != (count := getattr(report, name)):
            total = counted(count, name[:-1])
            report.problems.append(f"the shards have {total}, the manifest says {manifest[name]}")
    sums: dict[tuple[str, ...], int] = {}
    for shard in manifest["shards"]:
        for key, value in _flat(shard["ledger"]):
            sums[key] = sums.get(key, 0) + value
    total_ledger = dict(_flat(manifest["ledger"]))
    if any(sums.get(key, 0) != total_ledger.get(key, 0) for key in sums | total_ledger):
        report.problems.append("the ledgers of the shards do not add up to that of the manifest")


def _recount_in_place(report: OutputReport, manifest: Mapping[str, Any]) -> None:
    """The files of another system, then every plan with the documents' lengths."""
    found = recount_corpus(report.path, manifest)
    report.problems += found.problems
    if not found.problems:  # otherwise the lengths are not those of the plans
        _recount_plans(report, manifest, found.lengths)


def _recount_index(report: OutputReport, manifest: Mapping[str, Any]) -> None:
    """Every shard of documents, then every plan with the documents' lengths."""
    about, lengths = manifest["documents"], [np.zeros(0, dtype=np.int64)]

    def recount(shard: Mapping[str, Any], table: pa.Table) -> Recount:
        ends_with_eos = bool(about["end_with_eos"] and counts_eos(shard))
        found, own = recount_documents(table, manifest["options"], shard, ends_with_eos)
        lengths.append(own)
        if about["has_labels"] is not ("labels" in table.column_names):
            found.problems.append(
                "has labels and the manifest says that it has none, or vice versa"
            )
        return found

    totals = _recount_shards(report, manifest, "documents", recount)
    for name, count in (
        ("count", sum(found.rows for found in totals)),
        ("tokens", sum(found.tokens for found in totals)),
    ):
        if about[name] != count:
            report.problems.append(f"documents: {name} is {count}, not {about[name]}")
    _recount_plans(report, manifest, np.concatenate(lengths))


def _recount_plans(report: OutputReport, manifest: Mapping[str, Any], every: Ints) -> None:
    """Every plan, given the lengths of all documents."""
    for number, entry in enumerate(manifest["plans"]):
        try:
            found = recount_plan(report.path, entry, every, manifest)
        except CorruptFile as error:
            report.problems.append(str(error))
            continue
        report.plans += 1
        report.problems += _of_file(entry["file"], found.problems)
        if number == 0:
            report.rows, report.tokens = found.rows, found.tokens
            report.documents = found.documents
    report.problems += _plan_list_problems(manifest)


def _recount_shards(
    report: OutputReport,
    manifest: Mapping[str, Any],
    unit: str,
    recount: Callable[[Mapping[str, Any], pa.Table], Recount],
) -> list[Recount]:
    """What every readable shard holds, a row of its table being one `unit`."""
    counts = (shard.get(unit) for shard in manifest["shards"])
    total = sum(count for count in counts if isinstance(count, int))
    with stage("checking files", total, unit.removesuffix("s")) as advance:
        totals = [*_recounted(report, manifest, unit, recount, advance)]
    report.shards = len(totals)
    return totals


def _recounted(
    report: OutputReport,
    manifest: Mapping[str, Any],
    unit: str,
    recount: Callable[[Mapping[str, Any], pa.Table], Recount],
    advance: Advance,
) -> Iterator[Recount]:
    last_document = -1
    for shard in manifest["shards"]:
        try:
            table = _read_shard(report.path, shard)
            found = recount(shard, table)
        except CorruptFile as error:
            report.problems.append(str(error))
            continue
        found.problems += mapped_problems(report.path, manifest, shard, table)
        found.compare({unit: found.rows, "tokens": found.tokens}, shard)
        if found.first_document is not None and found.first_document <= last_document:
            found.problems.append("holds documents that an earlier shard holds, too")
        last_document = max(last_document, found.last_document or 0)
        report.problems += _of_file(shard["file"], found.problems)
        advance(found.rows)
        yield found


def _of_file(name: str, problems: Sequence[str]) -> Iterator[str]:
    """The first problems of a file, and how many more there are."""
    yield from (f"{name}: {problem}" for problem in problems[:_MOST_PROBLEMS])
    if (more := len(problems) - _MOST_PROBLEMS) > 0:
        yield f"{name}: and {counted(more, 'more problem')}"


def _read_shard(folder: AnyPath, shard: Mapping[str, Any]) -> pa.Table:
    try:
        with verified_file(folder, shard) as path:
            return pq.read_table(path, partitioning=None)
    except StorageError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(f"{shard['file']} cannot be read: {error}") from error


def _plan_list_problems(manifest: Mapping[str, Any]) -> Iterator[str]:
    first, plans = manifest["plans"][0], manifest["plans"]
    for name in ("rows", "tokens", "content", "ledger"):
        if manifest.get(name) != first.get(name):
            yield f"{name} of the manifest are not those of its first plan"
    if any(manifest["options"][name] != value for name, value in first["options"].items()):
        yield "options of the manifest are not those of its first plan"
    names = [plan["name"] for plan in plans]
    files = [plan["file"] for plan in plans]
    if len(set(names)) != len(names) or files != [f"plans/{name}.arrow" for name in names]:
        yield "plans of the manifest share a name, or have a file of another name"


def _flat(ledger: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[Any, int]]:
    for key, value in ledger.items():
        if isinstance(value, Mapping):
            yield from _flat(value, (*path, key))
        else:
            yield (*path, key), value
