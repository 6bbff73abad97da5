"""Recount an index-only output: shards that hold documents, and plans that arrange them in rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile
from quire.printable import counted
from quire.storage import AnyPath
from quire.verify.output.drops import ExpectedDrops, Span, dropped_by_shards
from quire.verify.output.manifest import is_in_place, verified_file
from quire.verify.output.shards import (
    Fragments,
    Ints,
    Recount,
    counts_eos,
    integer_problems,
    ledger_problems,
    list_column,
    recount_fragments,
    target_flags,
    trained_problems,
)

_REASONS = ("row_too_short", "too_long", "too_short", "truncated", "unsupervised")
"""The reasons for which a plan can drop documents or tokens."""


def recount_documents(
    table: pa.Table, options: Mapping[str, Any], shard: Mapping[str, Any], ends_with_eos: bool
) -> tuple[Recount, Ints]:
    """What a shard of documents holds, and the length of each."""
    name, ledger = shard["file"], shard["ledger"]
    ids, recorded = (_integers(name, table, column) for column in ("document_id", "length"))
    names = dict.fromkeys(["input_ids", *table.column_names])
    columns = {
        column: list_column(name, table, column)
        for column in names
        if column not in ("document_id", "length")
    }
    tokens, lengths = columns["input_ids"]
    found = Recount(
        rows=table.num_rows, tokens=len(tokens), content=len(tokens), documents=len(ids)
    )
    if (np.diff(ids) <= 0).any() or (len(ids) and ids[0] < 0):
        found.problems.append("has document ids that do not increase")
    if (recorded != lengths).any():
        document = int(ids[int(np.argmax(recorded != lengths))])
        found.problems.append(f"document {document} does not have the recorded length")
    if (lengths < 1).any():
        found.problems.append(f"document {int(ids[int(np.argmin(lengths))])} has no token")
    elif ends_with_eos and len(np.unique(tokens[np.cumsum(lengths) - 1])) > 1:
        found.problems.append("has documents that do not end with the same token (EOS)")
    found.problems += integer_problems(columns)
    for column, (_, other) in columns.items():
        if (other != lengths).any():
            message = f"has documents with a different number of {column} than of input_ids"
            found.problems.append(message)
    if len(ids):
        found.first_document, found.last_document = int(ids[0]), int(ids[-1])
    found.problems += ledger_problems(ledger, options)
    found.problems += _shard_ledger_problems(found, ledger, ends_with_eos * len(ids))
    return found, lengths


def recount_plan(
    folder: AnyPath, entry: Mapping[str, Any], lengths: Ints, manifest: Mapping[str, Any]
) -> Recount:
    """What the rows of a plan hold, given the lengths of the documents."""
    options, ledger = entry["options"], entry["ledger"]
    prefix = int(manifest["documents"]["opening"] is not None)
    with verified_file(folder, entry) as path:
        fragments, recorded = _read_plan(path, entry["file"], prefix)
    found = Recount(rows=len(fragments.per_row), tokens=int(fragments.sizes.sum()))
    found.problems += _fragment_problems(fragments, lengths)
    if found.problems:
        return found
    for name, said, expected in (
        ("max_length", recorded.get("max_length", recorded.get("capacity")), options["max_length"]),
        ("prefix", recorded.get("prefix"), prefix),
    ):
        if said != expected:
            found.problems.append(f"records {name} {said}, but the manifest requires {expected}")
    in_place = {"in_place": is_in_place(manifest)}
    found.problems += ledger_problems(ledger, manifest["options"] | options | in_place)
    ends_with_eos = bool(manifest["documents"]["end_with_eos"] and counts_eos(entry))
    documents, _, stops = fragments.spans()
    num_eos = int((stops == lengths[documents]).sum()) if ends_with_eos else 0
    recount_fragments(found, fragments, options, ledger, num_eos)
    if "trained" in ledger["tokens"]:
        count = _recount_trained(folder, manifest, fragments, lengths)
        found.problems += trained_problems(ledger, count)
    found.problems += _plan_ledger_problems(ledger, manifest, ends_with_eos * len(lengths))
    if not found.problems:
        found.problems += _drop_problems(folder, manifest, entry, fragments, lengths)
    found.compare({"rows": found.rows, "tokens": found.tokens}, entry)
    return found


def _recount_trained(
    folder: AnyPath, manifest: Mapping[str, Any], fragments: Fragments, lengths: Ints
) -> int | None:
    """Tokens in the rows of a plan that are trained; reads the labels of one shard at a time."""
    documents, starts, stops = fragments.spans()
    starts = starts + (1 - fragments.prefix)  # the first token of a fragment is not a target
    found, first = 0, 0
    for shard in manifest["shards"]:
        with verified_file(folder, shard) as path:
            table = pq.read_table(path, partitioning=None)
        flags = target_flags(shard["file"], table)
        if flags is None:
            return None
        own = lengths[first : first + table.num_rows]
        if int(own.sum()) != len(flags):
            raise CorruptFile(f"{shard['file']} has labels for {len(flags)} of {own.sum()} tokens")
        sums = np.append(0, np.cumsum(flags))
        here = (documents >= first) & (documents < first + len(own))
        at = (np.cumsum(own) - own)[documents[here] - first]
        found += int((sums[at + stops[here]] - sums[at + starts[here]]).sum())
        first += len(own)
    return found


def _integers(name: str, table: pa.Table, column: str) -> Ints:
    if column not in table.column_names:
        raise CorruptFile(f"{name} has no column {column}")
    if table[column].null_count or not pa.types.is_integer(table[column].type):
        raise CorruptFile(f"{name} has nulls, or values that are not integers, in {column}")
    integers: Ints = table[column].to_numpy().astype(np.int64)
    return integers


def _shard_ledger_problems(
    found: Recount, ledger: Mapping[str, Any], num_eos: int
) -> Iterator[str]:
    for name, expected in (("overlap", 0), ("special", num_eos), ("padding", 0)):
        if (count := ledger["tokens"][name]) != expected:
            yield (
                f"holds documents with {expected} EOS, but its ledger counts "
                f"{counted(count, f'{name} token')}"
            )
    for what, count in (("documents", found.documents), ("tokens", found.tokens - num_eos)):
        if (said := ledger[what]["emitted"]) != count:
            yield f"has {counted(count, what[:-1])} but its ledger counts {said}"


def _read_plan(path: Path, name: str, prefix: int) -> tuple[Fragments, dict[str, Any]]:
    """The fragments of a plan file, and the options that it records itself."""
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise CorruptFile(f"{name} cannot be read: {error}") from error
    columns = [list_column(name, table, column) for column in ("documents", "starts", "stops")]
    per_row = columns[0][1]
    if not all(np.array_equal(per_row, counts) for _, counts in columns):
        raise CorruptFile(f"{name} does not have one start and one stop for each fragment")
    documents, starts, stops = (values.astype(np.int64) for values, _ in columns)
    about = json.loads((table.schema.metadata or {}).get(b"quire.plan", b"{}"))
    sizes = stops - starts + prefix
    fragments = Fragments(
        per_row=per_row, sizes=sizes, prefix=prefix, documents=documents, offsets=starts
    )
    return fragments, about.get("options", {})


def _fragment_problems(fragments: Fragments, lengths: Ints) -> Iterator[str]:
    """A fragment that is not part of a document, or a row without any fragment."""
    documents, starts, stops = fragments.spans()
    inside = (documents >= 0) & (documents < len(lengths))
    if inside.all():
        inside = (starts >= 0) & (starts < stops) & (stops <= lengths[documents])
    if not inside.all():
        at = int(np.argmin(inside))
        yield (
            f"fragment {at} is tokens {starts[at]} to {stops[at]} of document {documents[at]}, "
            f"which do not exist (there are {counted(len(lengths), 'document')})"
        )
    if (fragments.per_row < 1).any():
        yield f"row {int(np.argmin(fragments.per_row))} has no fragment"


def _plan_ledger_problems(
    ledger: Mapping[str, Any], manifest: Mapping[str, Any], num_eos: int
) -> Iterator[str]:
    """Whether the plan counts what the shards dropped, and what it dropped itself."""
    about = manifest["documents"]
    # Shards hold no empty documents, but the files of another system may.
    reasons = (*_REASONS, "empty") if is_in_place(manifest) else _REASONS
    for what, total in (("documents", about["count"]), ("tokens", about["tokens"] - num_eos)):
        dropped = _dropped_by_plan(ledger, manifest)[what]
        if any(count < 0 or (count and r not in reasons) for r, count in dropped.items()):
            yield f"its ledger does not count the {what} that the shards dropped"
        lost = total - ledger[what]["emitted"]
        if lost != (said := sum(dropped.values())):
            yield f"leaves out {counted(lost, what[:-1])} but its ledger counts {said} as dropped"


def _dropped_by_plan(
    ledger: Mapping[str, Any], manifest: Mapping[str, Any]
) -> dict[str, dict[str, int]]:
    """What the plan's ledger counts as dropped, without what the shards had dropped before."""
    return {
        what: {
            reason: ledger[what]["dropped"].get(reason, 0) - before[reason]
            for reason in {**ledger[what]["dropped"], **before}
        }
        for what, before in dropped_by_shards(manifest).items()
    }


def _drop_problems(
    folder: AnyPath,
    manifest: Mapping[str, Any],
    entry: Mapping[str, Any],
    fragments: Fragments,
    lengths: Ints,
) -> Iterator[str]:
    """Problems with what the plan leaves out: without a reason, or counted under a wrong one."""
    about = manifest["documents"]
    drops = ExpectedDrops(
        {**manifest["options"], **entry["options"], "drop_longer_than": None},
        prefix=fragments.prefix,
        has_eos=bool(about["end_with_eos"]),
        eos_is_special=counts_eos(entry),
        has_rows=True,
    )
    documents, starts, stops = fragments.spans()
    order = np.lexsort((starts, documents))
    documents, starts, stops = documents[order], starts[order], stops[order]
    incomplete = _incomplete(documents, starts, stops, lengths)
    for document, labels in _labels(folder, manifest, incomplete, lengths):
        first, last = np.searchsorted(documents, [document, document + 1]).tolist()
        spans: list[Span] = [
            *zip(starts[first:last].tolist(), stops[first:last].tolist(), strict=True)
        ]
        missing = drops.add_document(int(lengths[document]), spans, labels)
        if missing is not None:
            yield (
                f"tokens {missing[0]} to {missing[1]} of document {document} are in no row, "
                "which the options do not explain"
            )
    yield from drops.problems(_dropped_by_plan(entry["ledger"], manifest))


def _incomplete(documents: Ints, starts: Ints, stops: Ints, lengths: Ints) -> Ints:
    """The documents with tokens that are in no fragment; fragments are in order."""
    continues = np.append(False, documents[1:] == documents[:-1])[: len(documents)]
    reached = np.where(continues, np.append(0, stops)[: len(stops)], 0)
    new = np.maximum(0, stops - np.maximum(starts, reached))
    covered = np.bincount(documents, weights=new, minlength=len(lengths))
    return np.flatnonzero((covered < lengths) | (lengths == 0))


def _labels(
    folder: AnyPath, manifest: Mapping[str, Any], wanted: Ints, lengths: Ints
) -> Iterator[tuple[int, npt.NDArray[Any] | None]]:
    """The wanted documents with their labels; shards are read again only if there are labels."""
    if not manifest["documents"]["has_labels"]:
        yield from ((document, None) for document in wanted.tolist())
        return
    first = 0
    for shard in manifest["shards"]:
        stop = first + int(shard["documents"])
        own = wanted[(first <= wanted) & (wanted < stop)]
        if len(own):
            with verified_file(folder, shard) as path:
                table = pq.read_table(path, columns=["labels"])
            labels, _ = list_column(shard["file"], table, "labels")
            ends = np.cumsum(lengths[first:stop])
            for document in own.tolist():
                end = int(ends[document - first])
                yield document, labels[end - int(lengths[document]) : end]
        first = stop
