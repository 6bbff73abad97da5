"""The figures of a report as plain JSON, which the page shows and tests recompute."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from quire.corpus.encoding import FILE_SHIFT, record_of
from quire.errors import CorruptFile
from quire.formats.record_kinds import WITH_IMAGES
from quire.ledger import Ledger
from quire.packed import PackedDataset
from quire.packed.manifest import content_of
from quire.plan import lower_bound
from quire.report.options import ReportOptions
from quire.report.row_figures import row_figures
from quire.text import as_tokenizer
from quire.verify.output.shards import Fragments

WORDS = {"row": "row", "document": "document", "fragment": "fragment", "source": "file"}
"""What the page calls the parts of a dataset."""
_COLUMNS = ["input_ids", "document_starts"]
_MOST_CHARACTERS = 400
_SHARES = 20
"""Bins of fragments by their share of trained tokens."""
_MOST_BAD_RECORDS = 200


def figures_of(
    path: Path,
    manifest: dict[str, Any],
    fragments: Fragments,
    options: ReportOptions,
    tokenizer: object | None = None,
) -> dict[str, Any]:
    """All figures of a report."""
    max_length = int(manifest["options"]["max_length"])
    return {
        "name": path.resolve().name,
        "words": WORDS,
        "headline": _headline(manifest, fragments, max_length),
        "ledger": Ledger.from_dict(manifest["ledger"]).to_dict(),
        "budgets": None,
        **row_figures(fragments, max_length, options),
        "trained": _trained(fragments),
        "sources": _sources(fragments, manifest),
        "rows": _first_rows(fragments, manifest, options.num_rows),
        "samples": _samples(path, manifest, tokenizer, options),
        "bad_records": _bad_records(path, manifest),
        "manifest": {key: value for key, value in manifest.items() if key != "shards"},
        "shards": [
            {k: v for k, v in shard.items() if k != "ledger"} for shard in manifest["shards"]
        ],
    }


def _headline(manifest: dict[str, Any], fragments: Fragments, max_length: int) -> dict[str, Any]:
    ledger = Ledger.from_dict(manifest["ledger"])
    num_rows, num_tokens = len(fragments.per_row), int(fragments.sizes.sum())
    num_places = num_rows * max_length
    cap = manifest["options"]["max_documents_per_row"]
    num_cut = None
    if fragments.documents is not None:
        num_cut = int((np.unique(fragments.documents, return_counts=True)[1] > 1).sum())
    content = content_of(manifest)
    return {
        "documents": ledger.documents.emitted,
        "documents_cut": num_cut,
        "fragments": len(fragments.sizes),
        "tokens": num_tokens,
        "rows": num_rows,
        "rows_bound": int(lower_bound(fragments.sizes, max_length, max_documents_per_row=cap)),
        "max_length": max_length,
        "utilization": content / num_places if num_places else 0.0,
        "padding": num_places - num_tokens,
        "dropped_documents": ledger.documents.num_dropped,
        "dropped_tokens": ledger.tokens.num_dropped,
        "strategy": manifest["options"]["strategy"],
        "overlong": _overlong(manifest["options"]),
    }


def _overlong(options: dict[str, Any]) -> str | None:
    """What happened to documents longer than a row; None if nothing was cut or dropped for it."""
    policy = str(options["overlong"])
    return None if options.get("record_kind") in WITH_IMAGES and policy == "split" else policy


def _trained(fragments: Fragments) -> dict[str, Any] | None:
    """Trained tokens, and fragments by the share of them; None if no label says which are."""
    if fragments.trained is None:
        return None
    shares = fragments.trained * _SHARES // np.maximum(fragments.sizes, 1)
    return {
        "tokens": int(fragments.trained.sum()),
        "fragments_without": int((fragments.trained == 0).sum()),
        "shares": {
            "width": 1 / _SHARES,
            "counts": np.bincount(np.minimum(shares, _SHARES - 1), minlength=_SHARES).tolist(),
        },
    }


def _sources(fragments: Fragments, manifest: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Documents, fragments and tokens in rows, by input file."""
    if fragments.documents is None:
        return None
    files, num_files = fragments.documents >> FILE_SHIFT, len(manifest["inputs"])
    if len(files) and not 0 <= int(files.min()) <= int(files.max()) < num_files:
        raise CorruptFile(
            f"a fragment is from input file {int(files.max())} but the manifest lists {num_files}; "
            "run quire verify"
        )
    tokens = np.bincount(files, weights=fragments.sizes, minlength=num_files)
    counts = np.bincount(files, minlength=num_files)
    documents = np.bincount(np.unique(fragments.documents) >> FILE_SHIFT, minlength=num_files)
    trained = None
    if fragments.trained is not None:
        trained = np.bincount(files, weights=fragments.trained, minlength=num_files)
    return [
        {
            "name": str(given["name"]),
            "documents": int(documents[number]),
            "fragments": int(counts[number]),
            "tokens": int(tokens[number]),
            "trained": None if trained is None else int(trained[number]),
        }
        for number, given in enumerate(manifest["inputs"])
    ]


def _first_rows(
    fragments: Fragments, manifest: dict[str, Any], num_rows: int
) -> list[list[dict[str, Any]]]:
    """Start, length and origin of every fragment in the first rows."""
    names = [str(given["name"]) for given in manifest["inputs"]]
    record_kind = manifest["options"].get("record_kind")
    rows, stop = [], 0
    for count in fragments.per_row[:num_rows].tolist():
        row, place = [], 0
        for number in range(stop, stop + count):
            length = int(fragments.sizes[number])
            block: dict[str, Any] = {"start": place, "length": length}
            if fragments.documents is not None and fragments.offsets is not None:
                document = int(fragments.documents[number])
                file, record, answer = record_of(document, record_kind)
                block |= {
                    "document": str(document),  # an id may exceed 2^53
                    "file": names[file],
                    "record": record,
                    "offset": int(fragments.offsets[number]),
                } | ({"answer": answer} if answer else {})
            row.append(block)
            place += length
        rows.append(row)
        stop += count
    return rows


def _samples(
    path: Path, manifest: dict[str, Any], tokenizer: object | None, options: ReportOptions
) -> list[list[str]] | None:
    """The beginning of every fragment's text in the first rows; None without a tokenizer."""
    if tokenizer is None and (manifest.get("tokenizer") or {}).get("kind") == "byte":
        tokenizer = "byte"
    decode = getattr(as_tokenizer(tokenizer), "decode", None) if tokenizer is not None else None
    if decode is None:
        return None
    if (plan := manifest["options"].get("plan")) is None:
        rows = _first_of_shards(path, manifest, options.num_samples)
    else:
        dataset = PackedDataset(path, plan=plan, cache_dir=options.cache_dir)
        first = [dataset[row] for row in range(min(options.num_samples, len(dataset)))]
        rows = [{name: row[name].tolist() for name in _COLUMNS} for row in first]
    samples = []
    for row in rows:
        starts, tokens = row["document_starts"], row["input_ids"]
        spans = zip(starts, [*starts[1:], len(tokens)], strict=True)
        samples.append([_excerpt(decode, tokens[start:stop]) for start, stop in spans])
    return samples


def _first_of_shards(path: Path, manifest: dict[str, Any], num_rows: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for shard in manifest["shards"]:
        with pq.ParquetFile(path / shard["file"]) as file:
            for batch in file.iter_batches(batch_size=max(1, num_rows), columns=_COLUMNS):
                rows += batch.to_pylist()
                if len(rows) >= num_rows:
                    return rows[:num_rows]
    return rows


def _excerpt(decode: Callable[[list[int]], str], tokens: list[int]) -> str:
    # Most tokens are at least one character long, so this many are enough.
    text = str(decode(tokens[:_MOST_CHARACTERS]))
    is_cut = len(text) > _MOST_CHARACTERS or len(tokens) > _MOST_CHARACTERS
    return text[:_MOST_CHARACTERS] + ("…" if is_cut else "")


def _bad_records(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    count = int(manifest["bad_records"]["count"])
    if not count:
        return {"count": 0, "first": []}
    file = path / "bad_records.jsonl"
    try:
        with file.open(encoding="utf-8") as lines:
            shown = zip(lines, range(_MOST_BAD_RECORDS), strict=False)
            return {"count": count, "first": [json.loads(line) for line, _ in shown]}
    except (OSError, ValueError) as error:
        raise CorruptFile(f"{file} cannot be read: {error}; run quire verify") from error
