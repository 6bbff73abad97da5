"""The fragments of all rows of a packed dataset: lengths and boundaries without the tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from quire.errors import CorruptFile
from quire.packed.in_place import open_recorded
from quire.packed.manifest import is_in_place
from quire.packed.mapped import require_sha256
from quire.plan import Plan
from quire.printable import counted
from quire.verify.output.shards import TARGETS, Fragments, Ints, read_fragments, target_flags

_SOURCES = ("input_ids", "document_starts", "document_ids", "document_offsets")
_COLUMNS = ("input_ids", "document_starts", "document_ids", "document_offsets", *TARGETS)


def packed_fragments(
    path: Path, manifest: dict[str, Any], on_shard: Callable[[int], None] = lambda rows: None
) -> Fragments:
    """The fragments of all shards; takes 24 bytes a fragment, and one row group at a time."""
    parts: list[Fragments] = []
    for shard in manifest["shards"]:
        own, num_tokens, name = [], 0, str(path / shard["file"])
        try:
            with pq.ParquetFile(name) as file:
                names = [name for name in _COLUMNS if name in file.schema_arrow.names]
                has_sources = set(_SOURCES) <= set(names)
                for batch in file.iter_batches(columns=names):
                    table = pa.Table.from_batches([batch])
                    tokens, found = read_fragments(name, table, has_sources=has_sources)
                    own.append(replace(found, trained=_trained(name, table, found)))
                    num_tokens += len(tokens)
        except CorruptFile as error:
            raise CorruptFile(f"{error}; run quire verify") from error
        except (OSError, pa.ArrowException) as error:
            raise CorruptFile(f"{name} cannot be read: {error}; run quire verify") from error
        num_rows = sum(len(part.per_row) for part in own)
        if (num_rows, num_tokens) != (shard["rows"], shard["tokens"]):
            raise CorruptFile(
                f"{name} has {counted(num_rows, 'row')} with "
                f"{counted(num_tokens, 'token')} but the manifest says {shard['rows']} and "
                f"{shard['tokens']}; run quire verify"
            )
        parts += own
        on_shard(num_rows)
    has_sources = bool(parts) and all(part.documents is not None for part in parts)
    return Fragments(
        per_row=_joined(part.per_row for part in parts),
        sizes=_joined(part.sizes for part in parts),
        prefix=0,
        documents=_joined(part.documents for part in parts) if has_sources else None,
        offsets=_joined(part.offsets for part in parts) if has_sources else None,
        trained=_joined(part.trained for part in parts) if _has_targets(parts) else None,
    )


def _has_targets(parts: Sequence[Fragments]) -> bool:
    return bool(parts) and all(part.trained is not None for part in parts)


def _trained(name: str, table: pa.Table, fragments: Fragments) -> Ints | None:
    """Trained tokens of each fragment; its first token is not one of them."""
    flags = target_flags(name, table)
    if flags is None:
        return None
    stops = np.cumsum(fragments.sizes)
    sums = np.append(0, np.cumsum(flags))
    found: Ints = (sums[stops] - sums[stops - fragments.sizes + 1]).astype(np.int64)
    return found


def planned_fragments(path: Path, manifest: dict[str, Any], entry: dict[str, Any]) -> Fragments:
    """The fragments of a plan of an index-only output; no token is read."""
    require_sha256(path / entry["file"], entry["sha256"])
    plan = Plan.load(path / entry["file"])
    ids = _document_ids(path, manifest)
    if len(ids) <= plan.documents.max(initial=-1):
        raise CorruptFile(
            f"{path} holds {counted(len(ids), 'document')} but plan {entry['name']!r} has one "
            f"numbered {int(plan.documents.max())}; run quire verify"
        )
    return Fragments(
        per_row=np.diff(plan.row_offsets).astype(np.int64),
        sizes=(plan.stops - plan.starts).astype(np.int64) + plan.options.prefix,
        prefix=plan.options.prefix,
        documents=ids[plan.documents],
        offsets=plan.starts.astype(np.int64),
        trained=_planned_trained(path, manifest, plan),
    )


def _document_ids(path: Path, manifest: dict[str, Any]) -> Ints:
    """The id of every document that plans are for."""
    if is_in_place(manifest):
        corpus = open_recorded(path, manifest)
        return corpus.document_ids(np.arange(len(corpus)))
    tables = [pq.read_table(path / s["file"], columns=["document_id"]) for s in manifest["shards"]]
    return _joined(table.column("document_id").to_numpy().astype(np.int64) for table in tables)


def _planned_trained(path: Path, manifest: dict[str, Any], plan: Plan) -> Ints | None:
    """Trained tokens of each fragment of a plan; reads the labels of one shard at a time."""
    if is_in_place(manifest):
        return None
    found, first = np.zeros(plan.num_fragments, np.int64), 0
    for shard in manifest["shards"]:
        name = str(path / shard["file"])
        known = pq.read_schema(name).names
        table = pq.read_table(name, columns=["length", *(n for n in TARGETS if n in known)])
        flags = target_flags(name, table)
        if flags is None:
            return None
        lengths = table.column("length").to_numpy()
        sums = np.append(0, np.cumsum(flags))
        here = (plan.documents >= first) & (plan.documents < first + len(lengths))
        at = (np.cumsum(lengths) - lengths)[plan.documents[here] - first]
        starts = plan.starts[here].astype(np.int64) + (1 - plan.options.prefix)
        found[here] = sums[at + plan.stops[here]] - sums[at + starts]
        first += len(lengths)
    return found


def _joined(arrays: Iterable[Ints | None]) -> Ints:
    given = [array for array in arrays if array is not None]
    return np.concatenate([np.zeros(0, np.int64), *given]).astype(np.int64)
