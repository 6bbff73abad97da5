"""A folder as `save_to_disk` writes it: Arrow streams, and two files that describe them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from quire.files import whole_file
from quire.packed.exports.parts import Part
from quire.packed.exports.tables import record_batches
from quire.packed.rows import STARTS

TOKENS_ONLY = False
TOKENS_PER_PART = 1 << 26
OPTIONS: Mapping[str, tuple[str, ...]] = {}


def names(part: Part) -> list[str]:
    """One Arrow file."""
    return [f"data-{part.number:05}-of-{part.num_parts:05}.arrow"]


def write(part: Part) -> None:
    """Write one Arrow file, as a stream."""
    batches = record_batches(part, STARTS)
    first = next(batches)
    with (
        whole_file(part.folder / names(part)[0]) as temporary,
        temporary.open("wb") as sink,
        pa.ipc.new_stream(sink, first.schema) as writer,
    ):
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def finish(parts: list[Part]) -> list[str]:
    """What `load_from_disk` reads first."""
    folder = parts[0].folder
    state: dict[str, Any] = {
        "_data_files": [{"filename": names(part)[0]} for part in parts],
        "_fingerprint": parts[0].dataset.fingerprint[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    described = {"dataset_info.json": {"features": None}, "state.json": state}
    for name, content in described.items():
        with whole_file(folder / name) as temporary:
            temporary.write_text(json.dumps(content, indent=2, sort_keys=True), encoding="utf-8")
    return list(described)
