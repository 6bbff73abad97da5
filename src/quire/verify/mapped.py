"""The form of the shards that readers map into memory, where there is one: the same rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from quire.storage import AnyPath, RemotePath
from quire.verify.recount import list_column

_FOLDER = ".mapped"


def mapped_problems(
    folder: AnyPath, manifest: Mapping[str, Any], shard: Mapping[str, Any], table: pa.Table
) -> Iterator[str]:
    """What a reader would map instead of this shard, if it is not the same.

    Of what stands in a store, readers keep it elsewhere, under the SHA-256 of what they fetched.
    """
    if isinstance(folder, RemotePath):
        return
    path = folder / _FOLDER / f"{Path(shard['file']).stem}.arrow"
    if not _is_trusted(path, manifest):
        return  # a reader makes it anew
    try:
        with pa.memory_map(str(path)) as source:
            mapped = pa.ipc.open_file(source).read_all()
            same = mapped.schema.equals(table.schema) and all(
                _same(mapped[name], table[name]) for name in table.column_names
            )
    except (pa.ArrowException, OSError, ValueError):
        same = False
    if not same:
        yield f"its mapped form {path.relative_to(folder)} holds something else; remove {_FOLDER}"


def _is_trusted(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether a reader would take it for what it is said to be."""
    try:
        index = json.loads((path.parent / "index.json").read_bytes())
        return path.is_file() and bool(
            index["sha256"] == [shard["sha256"] for shard in manifest["shards"]]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    one.validate(full=True)
    found, expected = list_column(one), list_column(other)
    if found is None or expected is None:
        return bool(one.equals(other))
    (values, lengths), (others, other_lengths) = found, expected
    same = np.array_equal(values, others, equal_nan=values.dtype.kind == "f")
    return same and np.array_equal(lengths, other_lengths)
