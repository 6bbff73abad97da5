"""What quire wrote and others may have changed: manifests, shards, plans."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quire.packed import PackedDataset
from quire.plan import Plan, make_plan
from quire.verify.inputs import verify_inputs
from quire.verify.output import verify_output
from tests.corpus.corpora import jsonl, pack, texts
from tests.fuzz.mutation import mutated_bytes, mutated_json
from tests.fuzz.target import Subject, Target, by_name


def _packed(folder: Path, **options: object) -> Path:
    """A small packed dataset, opened once, so that its mapped form exists."""
    out = folder / "out"
    pack(jsonl(folder / "a.jsonl", texts(20)), out, partition_size=400, **options)
    PackedDataset(out)
    return out


def _open(out: Path) -> None:
    dataset = PackedDataset(out)
    dataset.ledger.check()
    for row in (0, -1):
        if len(dataset):
            dataset[row]
    repr(dataset)


def _verify(out: Path) -> str | None:
    report = verify_output(out)
    verify_inputs(report, [out.parent / "a.jsonl"], "byte")
    report.to_json()
    return None if report.ok else "problems"


def _manifest_subject(
    read: Callable[[Path], str | None], **options: object
) -> Callable[[Path], Subject]:
    """Manifests that were changed, most of them still JSON; the other files are intact."""

    def prepare(folder: Path) -> Subject:
        out = _packed(folder, **options)
        manifest = out / "manifest.json"
        seed = json.dumps(_without_checksum(manifest))

        def make(choose: Random) -> bytes:
            if choose.random() < 0.1:
                return mutated_bytes(choose, seed.encode())
            return json.dumps(mutated_json(choose, seed)).encode("utf-8", "surrogatepass")

        def read_changed(data: bytes) -> str | None:
            manifest.write_bytes(data)
            return read(out)

        return Subject(make=make, read=read_changed)

    return prepare


def _without_checksum(manifest: Path) -> dict[str, Any]:
    """The manifest as an earlier quire wrote it, or nothing but the checksum would be tried."""
    plain: dict[str, Any] = json.loads(manifest.read_text())
    del plain["checksum"]
    return plain


def _shard(folder: Path) -> Subject:
    """Shards whose rows are wrong, or whose bytes are, with a matching checksum."""
    out = _packed(folder)
    manifest = _without_checksum(out / "manifest.json")
    file = out / manifest["shards"][0]["file"]
    table, data = pq.read_table(file), file.read_bytes()
    rows = json.dumps(table.to_pylist()[:3])

    def make(choose: Random) -> bytes:
        if choose.random() < 0.5:
            return mutated_bytes(choose, data)
        return _parquet(mutated_json(choose, rows), table.schema if choose.random() < 0.8 else None)

    def read(changed: bytes) -> str | None:
        file.write_bytes(changed)
        entry = {"sha256": hashlib.sha256(changed).hexdigest(), "bytes": len(changed)}
        manifest["shards"][0].update(entry)
        (out / "manifest.json").write_text(json.dumps(manifest))
        word = _verify(out)
        _open(out)
        return word

    return Subject(make=make, read=read)


def _parquet(rows: Any, schema: pa.Schema | None) -> bytes:
    """The rows as a file, if Arrow can hold them."""
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    except (pa.ArrowException, LookupError, TypeError, ValueError, AttributeError, OverflowError):
        return b"PAR1"
    return bytes(sink.getvalue())


def _plan(folder: Path) -> Subject:
    """Plans with wrong bytes, and plans forged with a matching checksum."""
    lengths = np.array([5, 3, 9, 1, 14, 2, 6, 30, 4])
    file = folder / "plan.arrow"
    make_plan(lengths, 16, overlong="split").save(file)
    data = file.read_bytes()
    with pa.memory_map(str(file)) as source:
        table = pa.ipc.open_file(source).read_all()
    about = json.loads(table.schema.metadata[b"quire.plan"])
    seed = json.dumps({"about": about, "columns": table.to_pydict()})

    def make(choose: Random) -> bytes:
        if choose.random() < 0.5:
            return mutated_bytes(choose, data)
        return _forged_plan(mutated_json(choose, seed))

    def read(changed: bytes) -> None:
        file.write_bytes(changed)
        plan = Plan.load(file)
        plan.ledger.check()
        for row in range(min(plan.num_rows, 3)):
            plan[row] if hasattr(plan, "__getitem__") else None
        _ = plan.utilization

    return Subject(make=make, read=read)


def _forged_plan(told: Any) -> bytes:
    try:
        about, columns = told["about"], told["columns"]
        table = pa.table({name: pa.array(lists) for name, lists in columns.items()})
        about = {**about, "sha256": _plan_checksum(about, table)}
        table = table.replace_schema_metadata({"quire.plan": json.dumps(about)})
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeWarning,
            pa.ArrowException):  # fmt: skip
        return b"ARROW1"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _plan_checksum(about: dict[str, Any], table: pa.Table) -> str:
    said = {key: value for key, value in about.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    lists = [column.combine_chunks() for column in table.columns]
    offsets = np.cumsum([0, *lists[0].value_lengths().to_pylist()])
    for array in (offsets, *(part.flatten().to_numpy(zero_copy_only=False) for part in lists)):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return digest.hexdigest()


TARGETS = by_name(
    Target(name="manifest", prepare=_manifest_subject(_open)),
    Target(name="manifest_verified", prepare=_manifest_subject(_verify)),
    Target(name="index", prepare=_manifest_subject(_open, index_only=True)),
    Target(name="index_verified", prepare=_manifest_subject(_verify, index_only=True)),
    Target(name="shard", prepare=_shard),
    Target(name="plan", prepare=_plan),
)
