"""The figures of a report, as plain JSON: the page shows them, a test can recompute them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from quire.errors import CorruptFile
from quire.ledger import Ledger
from quire.plan import balance, lower_bound
from quire.report.distributions import (
    attention_costs,
    counts_of,
    even_bins,
    length_bins,
    summary,
)
from quire.report.picture import first_rows, samples_of
from quire.report.shapes import Ints, RowShapes

FILE_SHIFT = 40
"""A document id is the number of its input file, times 2 to this, plus its record number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportOptions:
    """What a report shows of a dataset."""

    num_rows: int = 48
    """Rows in the picture."""
    num_samples: int = 3
    """Rows whose text is shown, where a tokenizer is at hand."""
    num_ranks: int = 8
    rows_per_rank: int = 1
    """Ranks, and rows of each in a step, for the balance of attention cost."""
    cache_dir: Path | None = None
    """Holds the memory-mapped form of an index-only output, as for `PackedDataset`."""


def figures_of(
    path: Path,
    manifest: dict[str, Any],
    shapes: RowShapes,
    options: ReportOptions,
    tokenizer: object | None = None,
) -> dict[str, Any]:
    """All figures of a report."""
    max_length = int(manifest["options"]["max_length"])
    documents = document_lengths(shapes)
    return {
        "name": path.resolve().name,
        "headline": _headline(manifest, shapes, max_length),
        "ledger": Ledger.from_dict(manifest["ledger"]).to_dict(),
        "lengths": length_bins(documents, shapes.fragment_lengths),
        "document_lengths": None if documents is None else summary(documents),
        "fragment_lengths": summary(shapes.fragment_lengths),
        "fill": even_bins(shapes.row_lengths, max_length, num_bins=50),
        "fill_summary": summary(shapes.row_lengths / max_length),
        "fragments_per_row": counts_of(shapes.fragments_per_row),
        "attention": _attention(shapes, max_length, options),
        "sources": _sources(shapes, manifest),
        "rows": first_rows(shapes, manifest, options.num_rows),
        "samples": samples_of(path, manifest, tokenizer, options.num_samples, options.cache_dir),
        "bad_records": _bad_records(path, manifest),
        "manifest": {key: value for key, value in manifest.items() if key != "shards"},
        "shards": [
            {k: v for k, v in shard.items() if k != "ledger"} for shard in manifest["shards"]
        ],
    }


def document_lengths(shapes: RowShapes) -> Ints | None:
    """Tokens of each document that stands in a row, specials and overlaps included."""
    if shapes.document_ids is None:
        return None
    _, members = np.unique(shapes.document_ids, return_inverse=True)
    return np.bincount(members, weights=shapes.fragment_lengths).astype(np.int64)


def _headline(manifest: dict[str, Any], shapes: RowShapes, max_length: int) -> dict[str, Any]:
    ledger = Ledger.from_dict(manifest["ledger"])
    places = shapes.num_rows * max_length
    fragments = len(shapes.fragment_lengths)
    cap = manifest["options"]["max_documents_per_row"]
    bound = lower_bound(shapes.fragment_lengths, max_length, max_documents_per_row=cap)
    return {
        "documents": ledger.documents.emitted,
        "documents_cut": None if shapes.document_ids is None else _num_cut(shapes.document_ids),
        "fragments": fragments,
        "tokens": int(shapes.row_lengths.sum()),
        "rows": shapes.num_rows,
        "rows_bound": int(bound),
        "max_length": max_length,
        "utilization": (ledger.tokens.emitted + ledger.tokens.overlap) / places if places else 0.0,
        "padding": places - int(shapes.row_lengths.sum()),
        "dropped_documents": ledger.documents.num_dropped,
        "dropped_tokens": ledger.tokens.num_dropped,
        "strategy": manifest["options"]["strategy"],
        "overlong": manifest["options"]["overlong"],
    }


def _num_cut(document_ids: Ints) -> int:
    """Documents that stand in more than one piece."""
    _, pieces = np.unique(document_ids, return_counts=True)
    return int((pieces > 1).sum())


def _attention(shapes: RowShapes, max_length: int, options: ReportOptions) -> dict[str, Any]:
    pairs, costs = attention_costs(shapes)
    figures: dict[str, Any] = {
        "pairs": even_bins(pairs, max_length**2, num_bins=50),
        "pairs_total": int(pairs.sum()),
        "pairs_without_boundaries": int((shapes.row_lengths**2).sum()),
        "ranks": options.num_ranks,
        "rows_per_rank": options.rows_per_rank,
        "balance": None,
    }
    if shapes.num_rows >= options.num_ranks * options.rows_per_rank:
        windows: dict[str, float] = {}
        for window in (1, 4, 16):
            dealt = balance(costs, options.num_ranks, options.rows_per_rank, window=window)
            figures["balance"] = {"before": dealt.before, "after": windows}
            windows[str(window)] = dealt.after
    return figures


def _sources(shapes: RowShapes, manifest: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Documents, fragments and tokens of each input file that stand in rows."""
    if shapes.document_ids is None:
        return None
    files = shapes.document_ids >> FILE_SHIFT
    num_files = len(manifest["inputs"])
    if len(files) and int(files.max()) >= num_files:
        raise CorruptFile(
            f"a fragment is of input file {int(files.max())} but the manifest names {num_files}; "
            "run quire verify"
        )
    tokens = np.bincount(files, weights=shapes.fragment_lengths, minlength=num_files)
    fragments = np.bincount(files, minlength=num_files)
    documents = np.bincount(np.unique(shapes.document_ids) >> FILE_SHIFT, minlength=num_files)
    return [
        {
            "name": str(given["name"]),
            "documents": int(documents[number]),
            "fragments": int(fragments[number]),
            "tokens": int(tokens[number]),
        }
        for number, given in enumerate(manifest["inputs"])
    ]


def _bad_records(path: Path, manifest: dict[str, Any], shown: int = 200) -> dict[str, Any]:
    count = int(manifest["bad_records"]["count"])
    if not count:
        return {"count": 0, "first": []}
    file = path / "bad_records.jsonl"
    try:
        with file.open(encoding="utf-8") as lines:
            first = [json.loads(line) for line, _ in zip(lines, range(shown), strict=False)]
    except (OSError, ValueError) as error:
        raise CorruptFile(f"{file} cannot be read: {error}; run quire verify") from error
    return {"count": count, "first": first}
