"""MosaicML's MDS: a sample for each row, whose arrays are ``tokens``, starts and other columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from quire.files import whole_file
from quire.packed.exports.parts import TOKENS, Part
from quire.packed.rows import Row

TOKENS_ONLY = False
TOKENS_PER_PART = 1 << 24
OPTIONS: Mapping[str, tuple[str, ...]] = {}
_NAMES = {TOKENS: "tokens"}
"""Names of MosaicML's own loaders for text."""


def names(part: Part) -> list[str]:
    """One shard."""
    return [f"shard.{part.number:05}.mds"]


def write(part: Part) -> None:
    """Write one shard: counts and offsets first, so its samples are kept until then."""
    samples, columns = [], _columns(part)
    for batch in part.batches():
        samples += [_sample(row, columns) for row in batch]
    config = _config(part, columns)
    ends = np.cumsum([len(sample) for sample in samples], dtype=np.int64)
    start = 4 + 4 * (len(samples) + 1) + len(config)
    offsets = start + np.concatenate([[0], ends])
    with whole_file(part.folder / names(part)[0]) as temporary, temporary.open("wb") as sink:
        sink.write(np.uint32(len(samples)).tobytes())
        sink.write(offsets.astype("<u4").tobytes())
        sink.write(config)
        sink.writelines(samples)


def finish(parts: list[Part]) -> list[str]:
    """The index of all shards."""
    columns = _columns(parts[0])
    shards = [
        {
            **_about(columns),
            "hashes": [],
            "raw_data": {
                "basename": names(part)[0],
                "bytes": (part.folder / names(part)[0]).stat().st_size,
                "hashes": {},
            },
            "samples": len(part.rows),
            "version": 2,
            "zip_data": None,
        }
        for part in parts
    ]
    with whole_file(parts[0].folder / "index.json") as temporary:
        temporary.write_text(json.dumps({"shards": shards, "version": 2}, sort_keys=True))
    return ["index.json"]


def _columns(part: Part) -> dict[str, tuple[str, str]]:
    """The name of each column in a sample, sorted: its name in rows, and its type."""
    first = part.dataset[0] if len(part.dataset) else {}
    named = {
        _NAMES.get(name, name): (name, str(first[name].dtype) if first else "int32")
        for name in part.dataset.columns
    }
    return dict(sorted(named.items()))


def _about(columns: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    return {
        "column_encodings": [f"ndarray:{_held(kind)}" for _, kind in columns.values()],
        "column_names": list(columns),
        "column_sizes": [None] * len(columns),
        "compression": None,
        "format": "mds",
        "size_limit": None,
    }


def _held(kind: str) -> str:
    return "uint8" if kind == "bool" else kind


def _config(part: Part, columns: Mapping[str, tuple[str, str]]) -> bytes:
    del part
    about = {**_about(columns), "hashes": [], "version": 2}
    return json.dumps(about, sort_keys=True).encode()


def _sample(row: Row, columns: Mapping[str, tuple[str, str]]) -> bytes:
    """The sizes of the arrays, then the arrays, each after its shape."""
    arrays = [_array(row[name].astype(_held(kind))) for name, kind in columns.values()]
    return np.array([len(one) for one in arrays], "<u4").tobytes() + b"".join(arrays)


def _array(values: npt.NDArray[Any]) -> bytes:
    code, kind = next(
        (code, kind)
        for code, kind in enumerate(("u1", "<u2", "<u4"))
        if len(values) < 1 << (8 << code)
    )
    return bytes([1 << 2 | code]) + np.array([len(values)], kind).tobytes() + values.tobytes()
