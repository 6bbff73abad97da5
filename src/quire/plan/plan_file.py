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
from quire.options import require_integer
from quire.plan.lengths import IntArray, Lengths
from quire.plan.mapped_plan import MappedPlan, checksum_of_rows
from quire.plan.options import PlanOptions
from quire.plan.plan import Plan, require_planned
from quire.seals import FORMAT_VERSION, Content, Migrations, migrated, read_version, renamed

COLUMNS = ("documents", "starts", "stops")
_KEY = b"quire.plan"
_AT_A_TIME = 1 << 20
_ROWS, _MOST_CHECKSUMS = 8192, 4096
"""Rows with one checksum, at least; and the most checksums, which all fit the end of the file."""
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
        **_checksums_of_rows(plan),
    }
    about["sha256"] = _checksum(about, plan.row_offsets, plan.documents, plan.starts, plan.stops)
    table = plan_table(plan).replace_schema_metadata({_KEY: json.dumps(about, sort_keys=True)})
    with (
        whole_file(path) as temporary,
        temporary.open("wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def _checksums_of_rows(plan: Plan) -> Content:
    """A CRC-32 of every few thousand rows, so that these can be read without all others."""
    rows = max(_ROWS, -(-plan.num_rows // _MOST_CHECKSUMS))
    every = range(0, plan.num_rows, rows)
    sums = (checksum_of_rows(plan, first, min(first + rows, plan.num_rows)) for first in every)
    return {"rows_at_a_time": rows, "crc32": "".join(f"{one:08x}" for one in sums)}


def _recorded(options: PlanOptions) -> Content:
    """The options as a file has them; 0.1.0 does not know ``ends_with_eos``."""
    plain = asdict(options)
    if not options.ends_with_eos:
        del plain["ends_with_eos"]
    return plain


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan in the file, validated; its arrays stay in mapped memory."""
    table, about = _mapped(path, full=True)
    offsets, arrays = _flat(path, table)
    if _checksum(about, offsets, *arrays) != about["sha256"]:
        raise CorruptFile(f"{path} does not match its checksum; save the plan again")
    return _plan(path, offsets, arrays, migrated(about, about["version"], _MIGRATIONS))


def _mapped(path: str | os.PathLike[str], *, full: bool) -> tuple[pa.Table, Content]:
    """The table of the file, and what its metadata say; ``full`` reads all of it."""
    try:
        with pa.memory_map(os.fspath(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=full)
        names = table.column_names  # in a damaged file they may not be text
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise CorruptFile(f"{path} is not a readable Arrow file: {error}; save it again") from error
    about = _about(path, table)
    if names != list(COLUMNS):
        raise CorruptFile(f"{path} has columns {names}, not {list(COLUMNS)}")
    return table, about


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


def open_plan(path: str | os.PathLike[str], lengths: Lengths) -> MappedPlan:
    """The plan in the file, for documents of these lengths; only rows that are used are read."""
    table, about = _mapped(path, full=False)
    if "crc32" not in about or any(table[name].num_chunks != 1 for name in COLUMNS):
        return _checked_plan(path, lengths)
    lists = [_lists(path, table, name) for name in COLUMNS]
    documents, starts, stops = (one.values.to_numpy() for one in lists)
    try:
        options = PlanOptions(**migrated(about, about["version"], _MIGRATIONS)["options"])
        ledger = Ledger.from_dict(about["ledger"]).check()
        checksums = np.frombuffer(bytes.fromhex(about["crc32"]), ">u4")
        rows = require_integer("rows_at_a_time", about["rows_at_a_time"], 1)
    except (QuireError, TypeError, ValueError) as error:
        raise CorruptFile(f"{path} does not hold a valid plan: {error}") from error
    if len(checksums) != -(-table.num_rows // rows):
        raise CorruptFile(f"{path} has {len(checksums)} checksums for {table.num_rows} rows")
    return MappedPlan(
        path=path,
        row_offsets=lists[0].offsets.to_numpy(),
        documents=documents,
        starts=starts,
        stops=stops,
        lengths=require_planned(lengths, str(about["lengths_sha256"]), ledger, options),
        rows_at_a_time=rows,
        checksums=checksums,
    )


def _checked_plan(path: str | os.PathLike[str], lengths: Lengths) -> MappedPlan:
    """A plan of an earlier version, which has one checksum for all rows."""
    plan = load_plan(path)
    return MappedPlan(
        path=path,
        row_offsets=plan.row_offsets,
        documents=plan.documents,
        starts=plan.starts,
        stops=plan.stops,
        lengths=require_planned(lengths, plan.fingerprint, plan.ledger, plan.options),
        rows_at_a_time=_ROWS,
        checksums=None,
    )


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
    column = table.column(name)
    lists = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
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
        for first in range(0, len(array), _AT_A_TIME):
            part = np.ascontiguousarray(array[first : first + _AT_A_TIME], dtype="<i8")
            digest.update(part.data)
    return digest.hexdigest()
