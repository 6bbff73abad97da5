"""Packs limited in tokens and tiles at once. "Bound" is proven: no plan has fewer rows; the gap is
relative to it. The peers are first-fit in document order, which keeps 20 packs open and emits the
fullest, and plain two-dimensional best-fit, decreasing by the largest share, into the pack with the
least total space; and the same in document order. No plan can be better than the bound. Synthetic
documents: text with one to twelve tiles or none, and up to three images of any size (tokens,
patches, images).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Table, best_of, milliseconds, percent
from quire.plan.search.bound import vector_bound
from quire.plan.search.several_budgets import pack_vectors

TITLE = "Several budgets at once"
SHARED = Path(__file__).parents[2] / "shared" / "lengths"
BUFFERS = (128, 512, 1000)


def run() -> list[Table]:
    return [_whole_files(), _buffers()]


def _whole_files() -> Table:
    table = Table(
        "All documents at once",
        ("documents", "number", "budgets", "packer", "rows", "bound", "gap", "seconds"),
    )
    for name, sizes, budgets in cases():
        bound: list[int] = []
        seconds = best_of(1, lambda: bound.append(vector_bound(sizes, budgets)))  # noqa: B023
        limits = " / ".join(f"{budget:,}" for budget in budgets)
        table.add(
            name, f"{len(sizes):,}", limits, "the bound", bound[0], bound[0], "", f"{seconds:.2f}"
        )
        for packer, pack in _packers(sizes, budgets):
            rows: list[int] = []
            seconds = best_of(1, lambda: rows.append(pack()))  # noqa: B023
            gap = percent(rows[0] / bound[0] - 1, 2)
            table.add(
                name, f"{len(sizes):,}", limits, packer, rows[0], bound[0], gap, f"{seconds:.2f}"
            )
    return table


def _buffers() -> Table:
    table = Table(
        "Buffers of documents, as a wrapper refills them: effort='fast'",
        ("documents", "budgets", "buffer", "buffers", "rows", "rows by volume", "ms a buffer"),
    )
    for name, sizes, budgets in cases():
        for size in BUFFERS:
            buffers = np.split(sizes[: 8 * size], 8)
            rows = sum(_fast(buffer, budgets) for buffer in buffers)
            volume = sum(int((-(-buffer.sum(axis=0) // budgets)).max()) for buffer in buffers)
            seconds = best_of(3, lambda: [_fast(b, budgets) for b in buffers])  # noqa: B023
            limits = " / ".join(f"{budget:,}" for budget in budgets)
            table.add(name, limits, size, len(buffers), rows, volume, milliseconds(seconds / 8))
    return table


def _fast(sizes, budgets) -> int:
    return int(pack_vectors(sizes, budgets, effort="fast").max()) + 1


def _packers(sizes, budgets) -> Iterator[tuple[str, Callable[[], int]]]:
    yield "first-fit, 20 packs open", lambda: first_fit(sizes, budgets, most_open=20)
    yield "best-fit decreasing", lambda: best_fit(sizes, budgets, decreasing=True)
    yield "best-fit in order", lambda: best_fit(sizes, budgets, decreasing=False)
    yield "quire, fast", lambda: _fast(sizes, budgets)
    yield "quire, full", lambda: int(pack_vectors(sizes, budgets).max()) + 1


def first_fit(sizes, budgets, most_open: int) -> int:
    open_packs: list[np.ndarray] = []
    rows = 0
    for size in sizes:
        pack = next((pack for pack in open_packs if (pack >= size).all()), None)
        if pack is None:
            if len(open_packs) == most_open:
                del open_packs[int(np.argmin([(pack / budgets).sum() for pack in open_packs]))]
            pack = np.array(budgets)
            open_packs.append(pack)
            rows += 1
        pack -= size
    return rows


def best_fit(sizes, budgets, *, decreasing: bool) -> int:
    shares = (sizes / budgets).max(axis=1)
    spaces = np.zeros((len(sizes), len(budgets)), dtype=np.int64)
    rows = 0
    for document in np.argsort(-shares, kind="stable") if decreasing else range(len(sizes)):
        fitting = np.flatnonzero((spaces[:rows] >= sizes[document]).all(axis=1))
        if len(fitting):
            row = fitting[np.argmin((spaces[fitting] / budgets).sum(axis=1))]
        else:
            row, rows = rows, rows + 1
            spaces[row] = budgets
        spaces[row] -= sizes[document]
    return rows


def cases() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    for name in ("chartqa_vl", "ai2d_vl"):
        path = SHARED / f"{name}.json"
        if path.exists():
            columns = json.loads(path.read_text())
            sizes = np.column_stack([columns["tokens"], columns["tiles"]])
            for tiles in (64, 56):
                yield name, sizes, np.array([16_384, tiles])
    rng = np.random.default_rng(0)
    with_image = rng.random(8000) < 0.5
    text = np.minimum(16_384, 1 + rng.lognormal(7, 0.6, 8000).astype(np.int64))
    tokens = np.where(with_image, rng.integers(300, 900, 8000), text)
    tiles = np.where(with_image, rng.integers(1, 13, 8000), 0)
    yield "text or tiles", np.column_stack([tokens, tiles]), np.array([16_384, 48])
    images = rng.integers(0, 4, 8000)
    patches = np.array([4 * rng.integers(64, 1280, number).sum() for number in images])
    tokens = np.minimum(16_384, 1 + patches // 4 + rng.lognormal(5.5, 0.8, 8000).astype(np.int64))
    sizes = np.column_stack([tokens, patches, images])
    yield "free image sizes", sizes, np.array([16_384, 40_000, 24])
