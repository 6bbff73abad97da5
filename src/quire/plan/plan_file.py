"""A plan on disk: an Arrow IPC file, one record per row, options and checksum in its metadata."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from quire.errors import CorruptFile, QuireError
from quire.files import whole_file
from quire.ledger import Ledger
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions
from quire.plan.plan import Plan
from quire.seals import FORMAT_VERSION, Content, Migrations, migrated, read_version, renamed

COLUMNS = ("documents", "starts", "stops")
_KEY = b"quire.plan"
_MOST_IN_LISTS = 2**31 - 1
"""Arrow lists count their items in 32 bits, large lists in 64."""


def _with_max_length(about: Content) -> Content:
    """Version 3 calls the capacity of a row max_length."""
    return {**about, "options": renamed({"capacity": "max_length"}, about["options"])}


_MIGRATIONS: Migrations = {2: _with_max_length}


def plan_table(plan: Plan) -> pa.Table:
    """One record per row; the lists share the plan's arrays."""
    lists = pa.ListArray if plan.num_fragments <= _MOST_IN_LISTS else pa.LargeListArray
    return pa.table(
        {name: lists.from_arrays(plan.row_offsets, getattr(plan, name)) for name in COLUMNS}
    )


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the file completely or not at all."""
    about = {
        "version": FORMAT_VERSION,
        "options": _recorded(plan.options),
        "ledger": plan.ledger.to_dict(),
        "lengths_sha256": plan.fingerprint,
    }
    about["sha256"] = _checksum(about, plan.row_offsets, plan.documents, plan.starts, plan.stops)
    table = plan_table(plan).replace_schema_metadata({_KEY: json.dumps(about, sort_keys=True)})
    with (
        whole_file(path) as temporary,
        temporary.open("wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def _recorded(options: PlanOptions) -> Content:
    """The options as a file has them; 0.1.0 does not know ``ends_with_eos``."""
    plain = asdict(options)
    if not options.ends_with_eos:
        del plain["ends_with_eos"]
    return plain


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan in the file, validated; its arrays stay in mapped memory."""
    try:
        with pa.memory_map(os.fspath(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
        names = table.column_names  # in a damaged file they may not be text
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise CorruptFile(f"{path} is not a readable Arrow file: {error}; save it again") from error
    about = _about(path, table)
    if names != list(COLUMNS):
        raise CorruptFile(f"{path} has columns {names}, not {list(COLUMNS)}")
    offsets, arrays = _flat(path, table)
    if _checksum(about, offsets, *arrays) != about["sha256"]:
        raise CorruptFile(f"{path} does not match its checksum; save the plan again")
    return _plan(path, offsets, arrays, migrated(about, about["version"], _MIGRATIONS))


def _plan(
    path: str | os.PathLike[str], offsets: IntArray, arrays: list[IntArray], about: dict[str, Any]
) -> Plan:
    try:
        return Plan(
            row_offsets=offsets,
            documents=arrays[0],
            starts=arrays[1],
            stops=arrays[2],
            options=PlanOptions(**about["options"]),
            ledger=Ledger.from_dict(about["ledger"]).check(),
            fingerprint=str(about["lengths_sha256"]),
        )
    except (QuireError, TypeError) as error:
        raise CorruptFile(f"{path} does not hold a valid plan: {error}") from error


def _about(path: str | os.PathLike[str], table: pa.Table) -> dict[str, Any]:
    try:
        about = json.loads((table.schema.metadata or {})[_KEY])
        version = about["version"]
        missing = {"options", "ledger", "lengths_sha256", "sha256"} - about.keys()
    except (KeyError, ValueError, TypeError, AttributeError):
        raise CorruptFile(f"{path} is an Arrow file but not a plan written by quire") from None
    read_version(str(path), version, CorruptFile)
    if missing:
        raise CorruptFile(f"{path} lacks {', '.join(sorted(missing))}; save the plan again")
    return dict(about)


def _flat(path: str | os.PathLike[str], table: pa.Table) -> tuple[IntArray, list[IntArray]]:
    columns = {name: _lists(path, table, name) for name in COLUMNS}
    offsets = _offsets(columns["documents"])
    for name, lists in columns.items():
        if not np.array_equal(_offsets(lists), offsets):
            raise CorruptFile(f"{path}: the rows of {name} are not as long as those of documents")
    return offsets, [lists.flatten().to_numpy() for lists in columns.values()]


def _lists(path: str | os.PathLike[str], table: pa.Table, name: str) -> pa.Array:
    lists = table.column(name).combine_chunks()
    kind = lists.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(
        kind.value_type
    ):
        raise CorruptFile(f"{path}: column {name} has type {kind}, not lists of integers")
    if lists.null_count or lists.flatten().null_count:
        raise CorruptFile(f"{path}: column {name} holds nulls")
    return lists


def _offsets(lists: pa.Array) -> IntArray:
    return np.cumsum(np.append(0, lists.value_lengths().to_numpy()))


def _checksum(about: dict[str, Any], *arrays: IntArray) -> str:
    """SHA-256 over the metadata (except itself) and the arrays."""
    plain = {key: value for key, value in about.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return digest.hexdigest()
