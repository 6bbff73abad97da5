"""Recount an index-only output: documents in shards, and plans of the rows that they stand in.

Nothing here is shared with the code that wrote it: a mistake made there is not made again here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.errors import CorruptFile
from quire.storage import AnyPath
from quire.verify.files import checked
from quire.verify.plan_drops import plan_drop_problems
from quire.verify.recount import (
    Ints,
    Recount,
    ledger_problems,
    list_column,
    recount_documents,
)

_COLUMNS = ("document_id", "length", "input_ids")
_REASONS_OF_PLANS = ("row_too_short", "too_long", "too_short", "truncated", "unsupervised")


def recount_shard(
    documents: pa.Table, ledger: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[Recount, Ints]:
    """What a shard of documents holds, and the length of each."""
    found = Recount(rows=documents.num_rows, tokens=0)
    nothing = np.zeros(0, dtype=np.int64)
    missing = [name for name in _COLUMNS if name not in documents.column_names]
    if missing:
        found.problems.append(f"has no column {', '.join(missing)}")
        return found, nothing
    lists = {
        name: list_column(documents[name])
        for name in documents.column_names
        if name not in ("document_id", "length")
    }
    wrong = [name for name, pair in lists.items() if pair is None]
    plain = [name for name in _COLUMNS[:2] if documents[name].null_count]
    if wrong or plain:
        found.problems.append(f"has nulls, or no numbers, in {', '.join([*wrong, *plain])}")
        return found, nothing
    ids, said = (documents[name].to_numpy().astype(np.int64) for name in _COLUMNS[:2])
    columns = {name: pair for name, pair in lists.items() if pair is not None}
    tokens, lengths = columns["input_ids"]
    found.tokens, found.documents = len(tokens), len(ids)
    found.problems += _document_problems(ids, said, tokens, lengths)
    for name, (_, other) in columns.items():
        if (other != lengths).any():
            found.problems.append(f"has documents whose {name} are not as many as their input_ids")
    if len(ids):
        found.first_document, found.last_document = int(ids[0]), int(ids[-1])
    found.problems += _shard_ledger_problems(found, ledger, options)
    return found, lengths


def _document_problems(ids: Ints, said: Ints, tokens: Ints, lengths: Ints) -> Iterator[str]:
    if (np.diff(ids) <= 0).any() or (len(ids) and ids[0] < 0):
        yield "has document ids that do not rise"
    if (said != lengths).any():
        document = int(ids[int(np.argmax(said != lengths))])
        yield f"document {document} has another length than is said of it"
    if (lengths < 1).any():
        yield f"document {int(ids[int(np.argmin(lengths))])} has no token"
    if len(tokens) and tokens.min() < 0:
        yield f"has a token id {tokens.min()}"


def _shard_ledger_problems(
    found: Recount, ledger: Mapping[str, Any], options: Mapping[str, Any]
) -> Iterator[str]:
    yield from ledger_problems(ledger, options)
    for name in ("overlap", "special", "padding"):
        if ledger["tokens"][name]:
            yield f"holds documents, but its ledger counts {ledger['tokens'][name]} tokens {name}"
    for what, count in (("documents", found.documents), ("tokens", found.tokens)):
        if ledger[what]["emitted"] != count:
            yield f"has {count} {what} but its ledger counts {ledger[what]['emitted']}"


def recount_plan(
    folder: AnyPath, entry: Mapping[str, Any], lengths: Ints, manifest: Mapping[str, Any]
) -> Recount:
    """What the rows of a plan hold, against the documents that are there."""
    with checked(folder, entry) as path:
        table = _read_plan(path, entry["file"])
    offsets, documents, starts, stops = _flat(table, entry["file"])
    found = Recount(rows=len(offsets) - 1, tokens=0)
    inside = (documents >= 0) & (documents < len(lengths))
    if inside.all():
        inside = (starts >= 0) & (starts < stops) & (stops <= lengths[documents])
    if not inside.all():
        at = int(np.argmin(inside))
        found.problems.append(
            f"fragment {at} is tokens {starts[at]} to {stops[at]} of document {documents[at]}, "
            f"which is not there (there are {len(lengths)} documents)"
        )
        return found
    opening = int(manifest["documents"]["opening"] is not None)
    found.problems += _says_the_same(table, opening, int(entry["options"]["max_length"]))
    sizes = stops - starts + opening
    found.tokens = int(sizes.sum())
    found.problems += _row_problems(offsets, sizes, entry["options"])
    ledger, options = entry["ledger"], entry["options"]
    recount_documents(found, documents, starts, stops - starts, options, ledger)
    found.problems += _plan_ledger_problems(found, opening * len(documents), entry, manifest)
    if not found.problems:
        fragments = (documents, starts, stops)
        found.problems += plan_drop_problems(folder, manifest, entry, fragments, lengths)
    found.problems += [
        f"has {value} {name} but the manifest says {entry.get(name)}"
        for name, value in (("rows", found.rows), ("tokens", found.tokens))
        if entry.get(name) != value
    ]
    return found


def _says_the_same(table: pa.Table, opening: int, max_length: int) -> Iterator[str]:
    """The terms that a reader takes from the plan itself are those of the manifest."""
    said = json.loads((table.schema.metadata or {}).get(b"quire.plan", b"{}")).get("options", {})
    for name, value in (("capacity", max_length), ("prefix", opening)):
        if said.get(name) != value:
            yield f"says {name} {said.get(name)}, but the manifest makes it {value}"


def _read_plan(path: Path, name: str) -> pa.Table:
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise CorruptFile(f"{name} cannot be read: {error}") from error
    return table


def _flat(table: pa.Table, name: str) -> tuple[Ints, Ints, Ints, Ints]:
    """Row offsets, documents, starts and stops, as the Arrow file has them."""
    pairs: list[tuple[npt.NDArray[Any], Ints]] = []
    for column in ("documents", "starts", "stops"):
        pair = list_column(table[column]) if column in table.column_names else None
        if pair is None or (pairs and not np.array_equal(pairs[0][1], pair[1])):
            raise CorruptFile(f"{name} has no {column} for each of its fragments")
        pairs.append(pair)
    documents, starts, stops = (values.astype(np.int64) for values, _ in pairs)
    return np.append(0, np.cumsum(pairs[0][1])), documents, starts, stops


def _row_problems(offsets: Ints, sizes: Ints, options: Mapping[str, Any]) -> Iterator[str]:
    counts = np.diff(offsets)
    if (counts < 1).any():
        yield f"row {int(np.argmin(counts))} has no fragment"
        return
    ends = np.append(0, np.cumsum(sizes))
    rows = np.diff(ends[offsets])
    checks = (
        (rows > int(options["max_length"]), "tokens, more than", options["max_length"], rows),
        (rows < int(options["min_len"]), "tokens, fewer than", options["min_len"], rows),
        (
            counts > int(options["max_documents_per_row"] or counts.max(initial=0)),
            "fragments, more than",
            options["max_documents_per_row"],
            counts,
        ),
    )
    for wrong, what, limit, values in checks:
        if wrong.any():
            row = int(np.argmax(wrong))
            yield f"row {row} has {values[row]} {what} {limit}"


def _plan_ledger_problems(
    found: Recount, opened: int, entry: Mapping[str, Any], manifest: Mapping[str, Any]
) -> Iterator[str]:
    """The equation, the places, and that the plan lost what it says, to the token."""
    ledger = entry["ledger"]
    yield from ledger_problems(ledger, manifest["options"] | entry["options"])
    tokens = ledger["tokens"]
    places = found.rows * int(entry["options"]["max_length"])
    for name, count in (("special", opened), ("padding", places - found.tokens)):
        if tokens[name] != count:
            yield f"has {count} tokens of {name} but its ledger counts {tokens[name]}"
    for what, there in (("documents", "count"), ("tokens", "tokens")):
        dropped = dict(ledger[what]["dropped"])
        for shard in manifest["shards"]:
            for reason, count in shard["ledger"][what]["dropped"].items():
                dropped[reason] = dropped.get(reason, 0) - count
        by_plan = sum(dropped.values())
        if any(count < 0 for count in dropped.values()) or any(
            count for reason, count in dropped.items() if reason not in _REASONS_OF_PLANS
        ):
            yield f"its ledger does not count the {what} that the shards left out"
        lost = manifest["documents"][there] - ledger[what]["emitted"]
        if lost != by_plan:
            yield f"{lost} {what} stand in no row but {by_plan} are counted as dropped"
