"""The first rows as blocks, and the text of a few."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from quire.packed import PackedDataset
from quire.report.shapes import RowShapes
from quire.text import as_tokenizer

_COLUMNS = ["input_ids", "document_starts"]
_SHIFT = 40
_RECORD = (1 << _SHIFT) - 1
_MOST_CHARACTERS = 400


def first_rows(
    shapes: RowShapes, manifest: dict[str, Any], num_rows: int
) -> list[list[dict[str, Any]]]:
    """The fragments of the first rows: where they start, how long they are, whose they are."""
    names = [str(given["name"]) for given in manifest["inputs"]]
    return [
        _blocks(shapes, names, int(shapes.row_offsets[row]), int(shapes.row_offsets[row + 1]))
        for row in range(min(num_rows, shapes.num_rows))
    ]


def _blocks(shapes: RowShapes, names: list[str], first: int, last: int) -> list[dict[str, Any]]:
    lengths = shapes.fragment_lengths[first:last]
    starts = np.cumsum(lengths) - lengths
    blocks: list[dict[str, Any]] = [
        {"start": int(start), "length": int(length)}
        for start, length in zip(starts, lengths, strict=True)
    ]
    if shapes.document_ids is not None and shapes.document_offsets is not None:
        for place, block in enumerate(blocks, start=first):
            document = int(shapes.document_ids[place])
            block |= {
                "document": str(document),  # 2^53 is less than an id may be
                "file": names[document >> _SHIFT],
                "record": document & _RECORD,
                "offset": int(shapes.document_offsets[place]),
            }
    return blocks


def samples_of(
    path: Path,
    manifest: dict[str, Any],
    tokenizer: object | None,
    num_samples: int,
    cache_dir: Path | None = None,
) -> list[list[str]] | None:
    """The beginning of every fragment's text in the first rows; None without a tokenizer."""
    given = manifest.get("tokenizer") or {}
    if tokenizer is None and given.get("kind") == "byte":
        tokenizer = "byte"
    decode = getattr(as_tokenizer(tokenizer), "decode", None) if tokenizer is not None else None
    if decode is None:
        return None
    rows = _head(path, manifest, num_samples, cache_dir)
    return [[_excerpt(decode, row["input_ids"][a:b]) for a, b in _pairs(row)] for row in rows]


def _head(
    path: Path, manifest: dict[str, Any], num_rows: int, cache_dir: Path | None
) -> list[dict[str, Any]]:
    if "plan" in manifest["options"]:
        plan = manifest["options"]["plan"]
        dataset = PackedDataset(path, plan=plan, cache_dir=cache_dir)
        rows = [dataset[row] for row in range(min(num_rows, len(dataset)))]
        return [{name: row[name].tolist() for name in _COLUMNS} for row in rows]
    return _head_of_shards(path, manifest, num_rows)


def _head_of_shards(path: Path, manifest: dict[str, Any], num_rows: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for shard in manifest["shards"]:
        with pq.ParquetFile(path / shard["file"]) as file:
            for batch in file.iter_batches(batch_size=max(1, num_rows), columns=_COLUMNS):
                rows += batch.to_pylist()
                if len(rows) >= num_rows:
                    return rows[:num_rows]
    return rows


def _pairs(row: dict[str, Any]) -> list[tuple[int, int]]:
    starts = row["document_starts"]
    return list(zip(starts, [*starts[1:], len(row["input_ids"])], strict=True))


def _excerpt(decode: Any, tokens: list[int]) -> str:  # noqa: ANN401 - a tokenizer's own
    # A token is seldom over a few characters, so this many tokens are enough and few.
    text = str(decode(tokens[:_MOST_CHARACTERS]))
    cut = len(text) > _MOST_CHARACTERS or len(tokens) > _MOST_CHARACTERS
    return text[:_MOST_CHARACTERS] + ("…" if cut else "")
