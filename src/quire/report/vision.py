"""The figures of vision-language packs: fill per budget, and which budget binds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from quire import __version__
from quire.plan import lower_bound
from quire.plan.lengths import IntArray
from quire.plan.search.bound import vector_bound
from quire.report.distributions import even_bins, summary
from quire.report.options import ReportOptions
from quire.report.row_figures import row_figures
from quire.verify.output.shards import Fragments

if TYPE_CHECKING:
    from quire.vision import PackedVLDataset, PackingTelemetry
    from quire.vision.plan import PackSizes

WORDS = {"row": "pack", "document": "sample", "fragment": "sample", "source": "dataset"}
"""What the page calls the parts of a dataset."""


def vision_figures(packed: PackedVLDataset, options: ReportOptions) -> dict[str, Any]:
    """The figures of the packs that a rank has in its epoch, from the lengths of samples."""
    packs, telemetry = packed.pack_sizes(), packed.planned_telemetry()
    if telemetry is None:  # `pack_sizes` has raised already
        raise AssertionError("packs are planned but have no telemetry")
    fragments = Fragments(
        per_row=packs.per_pack.astype(np.int64),
        sizes=packs.sizes["tokens"].astype(np.int64),
        prefix=0,
        documents=packs.positions.astype(np.int64),
    )
    sources, shapes = (
        _sources(packed, packs),
        row_figures(fragments, packed.packing_length, options),
    )
    shapes["lengths"]["documents"] = None  # samples are not cut: their lengths stay the same
    return {
        "name": f"epoch {packed.epoch}, rank {packed.rank[0]} of {packed.rank[1]}",
        "words": WORDS,
        "headline": _headline(packed, packs, telemetry),
        "ledger": telemetry.ledger.to_dict(),
        "budgets": _budgets(packs),
        **shapes,
        "trained": None,
        "sources": sources,
        "rows": _first_packs(packs, sources, packed, options.num_rows),
        "samples": None,
        "bad_records": None,
        "manifest": {"format": {"quire": __version__}, "options": asdict(packed.options)},
        "shards": [],
    }


def _headline(
    packed: PackedVLDataset, packs: PackSizes, telemetry: PackingTelemetry
) -> dict[str, Any]:
    num_packs, tokens = len(packs.per_pack), packs.sizes["tokens"]
    lengths = _per_pack(packs, tokens)
    return {
        "documents": len(packs.positions),
        "documents_cut": 0,
        "fragments": len(packs.positions),
        "tokens": int(tokens.sum()),
        "rows": num_packs,
        "rows_bound": _bound(packs),
        "max_length": packed.packing_length,
        "utilization": telemetry.fill_mean,
        "padding": int(np.maximum(packed.packing_length - lengths, 0).sum()),
        "single_long": packs.num_single_long,
        "dropped_documents": telemetry.ledger.documents.num_dropped,
        "dropped_tokens": telemetry.ledger.tokens.num_dropped,
    }


def _bound(packs: PackSizes) -> int:
    """No plan has fewer packs for these samples; each sample that is too long has its own."""
    limits = {name: limit for name, limit in packs.limits.items() if name != "samples"}
    sizes = np.column_stack([packs.sizes[name] for name in limits])
    alone = (sizes > np.array(list(limits.values()))).any(axis=1)
    alone |= sizes[:, 0] >= limits["tokens"]
    rest, most = sizes[~alone], packs.limits.get("samples")
    if len(limits) == 1:
        bound = lower_bound(rest[:, 0], limits["tokens"], max_documents_per_row=most)
    else:
        bound = vector_bound(rest, list(limits.values()), max_items=most)
    return int(bound) + int(alone.sum())


def _budgets(packs: PackSizes) -> list[dict[str, Any]]:
    """How full packs are in each measure, and how often a measure is the fullest of a pack."""
    sizes = {**packs.sizes, "samples": np.ones(len(packs.positions), np.int64)}
    used = {name: _per_pack(packs, column) for name, column in sizes.items()}
    fills = {name: used[name] / limit for name, limit in packs.limits.items()}
    fullest = np.argmax(np.column_stack(list(fills.values())), axis=1)  # of equals, the first
    binds = dict(zip(fills, np.bincount(fullest, minlength=len(fills)).tolist(), strict=True))
    return [
        _budget(name, counts, packs.limits.get(name), binds.get(name))
        for name, counts in used.items()
        if name in packs.limits or counts.any()
    ]


def _budget(name: str, used: IntArray, limit: int | None, binds: int | None) -> dict[str, Any]:
    total = int(used.sum())
    figures = {"name": name, "total": total, "per_pack": summary(used), "limit": limit}
    if limit is None:
        return figures
    return figures | {
        "fill": even_bins(used.astype(np.int64), limit, num_bins=20),
        "fill_mean": float(np.minimum(used / limit, 1).mean()) if len(used) else 0.0,
        "binds": binds,
        "packs_needed": -(-total // limit),
    }


def _per_pack(packs: PackSizes, column: IntArray) -> IntArray:
    ends = np.append(0, np.cumsum(column))
    sums: IntArray = np.diff(ends[np.append(0, np.cumsum(packs.per_pack))])
    return sums


def _sources(packed: PackedVLDataset, packs: PackSizes) -> list[dict[str, Any]] | None:
    """Samples and tokens in packs by fused dataset; None if datasets are not fused."""
    source_of = getattr(packed.dataset, "source_of", None)
    if source_of is None:
        return None
    names = [source_of(position) for position in packs.positions.tolist()]
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    members = np.array([numbers[name] for name in names], dtype=np.int64)
    counts = np.bincount(members, minlength=len(numbers)).tolist()
    tokens = np.bincount(members, weights=packs.sizes["tokens"], minlength=len(numbers)).tolist()
    return [
        {
            "name": name,
            "documents": counts[number],
            "fragments": counts[number],
            "tokens": int(tokens[number]),
            "trained": None,
        }
        for name, number in numbers.items()
    ]


def _first_packs(
    packs: PackSizes,
    sources: list[dict[str, Any]] | None,
    packed: PackedVLDataset,
    num_packs: int,
) -> list[list[dict[str, Any]]]:
    """Place and sizes of every sample in the first packs."""
    rows, stop = [], 0
    for count in packs.per_pack[:num_packs].tolist():
        row, place = [], 0
        for number in range(stop, stop + count):
            sizes = {name: int(column[number]) for name, column in packs.sizes.items()}
            position, length = int(packs.positions[number]), sizes.pop("tokens")
            block = {"start": place, "length": length, "document": str(position), **sizes}
            if sources is not None:
                block["file"] = packed.dataset.source_of(position)
            row.append(block)
            place += length
        rows.append(row)
        stop += count
    return rows
