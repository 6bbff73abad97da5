"""A packed dataset read back in shuffled order: `PackedDataset`, whose rows are views of mapped
memory, compared with `datasets.load_dataset("parquet", …)` of the same shards with NumPy and torch
formatting. A row counts as read when its tokens were summed, so that mapped pages are included.
Batches have 8 rows, which one function puts into one int32 tensor on both sides: ours in
`loader(global_batch=8, collate=…).torch()`, theirs in a plain torch `DataLoader` over the dataset
with NumPy formatting. Files are in the page cache; the first opening, which creates the mapped form
or the cache of `datasets`, is timed separately.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Table, draw_lengths, ratio

TITLE = "Reading a packed dataset"
CAPACITY = 4096
NUM_TOKENS = 50_000_000
BATCH = 8
SECONDS = 2.0
REPEATS = 3
_PEER = f"datasets {version('datasets')}"


def run() -> list[Table]:
    from datasets import disable_progress_bars

    disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        packed = _packed(Path(folder))
        return [_rows(packed, Path(folder)), _batches(packed, Path(folder))]


def _packed(folder: Path) -> Path:
    """Random tokens in documents of web-like lengths, packed by the command's own function."""
    from quire import pack_corpus

    lengths = draw_lengths("web", NUM_TOKENS // 500, CAPACITY)
    lengths = lengths[: np.searchsorted(np.cumsum(lengths), NUM_TOKENS)]
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    ids = np.random.default_rng(0).integers(0, 150_000, int(lengths.sum()), dtype=np.int32)
    table = pa.table({"input_ids": pa.ListArray.from_arrays(offsets, pa.array(ids))})
    pq.write_table(table, folder / "tokens.parquet", row_group_size=1000)
    return pack_corpus(
        [folder / "tokens.parquet"],
        folder / "packed",
        pretokenized=True,
        max_length=CAPACITY,
        partition_size="64M",
    ).path


def _opened(packed: Path, folder: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """The datasets of both sides, and the seconds of their first opening."""
    from datasets import load_dataset

    from quire import PackedDataset

    files = sorted(str(path) for path in packed.rglob("*.parquet"))
    columns = ["input_ids", "document_starts"]
    start = time.perf_counter()
    ours = PackedDataset(packed)
    middle = time.perf_counter()
    theirs = load_dataset(
        "parquet", data_files=files, split="train", columns=columns, cache_dir=str(folder / "cache")
    )
    end = time.perf_counter()
    opened = {
        "quire PackedDataset": ours,
        "quire PackedDataset.torch()": ours.torch(),
        f"{_PEER}, numpy": theirs.with_format("numpy"),
        f"{_PEER}, torch": theirs.with_format("torch"),
        f"{_PEER}, lists": theirs,
    }
    seconds = dict.fromkeys(opened, end - middle)
    return opened, seconds | dict.fromkeys(list(opened)[:2], middle - start)


def _rows(packed: Path, folder: Path) -> Table:
    opened, seconds = _opened(packed, folder)
    number = len(opened["quire PackedDataset"])
    table = Table(
        f"Random rows, {number:,} of {CAPACITY:,} tokens",
        ["what", "first opening", "rows a second", "of PackedDataset"],
        f"One row at a time, for {SECONDS:.0f} seconds, best of {REPEATS}.",
    )
    order = np.random.default_rng(0).permutation(number).tolist()
    rates = _best_rates({what: _reading(rows, order) for what, rows in opened.items()})
    for what, rate in rates.items():
        share = ratio(rate / rates["quire PackedDataset"])
        table.add(what, f"{seconds[what]:.2f} s", f"{rate:,.0f}", share)
    return table


def _reading(rows: Any, order: list[int]) -> Callable[[], Iterator[int]]:
    def read() -> Iterator[int]:
        for row in itertools.cycle(order):
            ids = rows[row]["input_ids"]
            _ = sum(ids) if isinstance(ids, list) else ids.sum()
            yield 1

    return read


def _batches(packed: Path, folder: Path) -> Table:
    opened, _ = _opened(packed, folder)
    rows, theirs = opened["quire PackedDataset"], opened[f"{_PEER}, numpy"]
    table = Table(
        f"Shuffled batches of {BATCH} rows",
        ["what", "workers", "rows a second", "of quire's"],
        f"torch {version('torch')}. For {SECONDS:.0f} seconds from the first batch on, best of "
        f"{REPEATS}. Workers of torch send their batches to this process, which takes longer than "
        "making them here: they pay when collation does more than copying.",
    )
    for workers in (0, 2):
        sides = {"loader": _ours(rows, workers), f"DataLoader, {_PEER}": _theirs(theirs, workers)}
        rates = _best_rates(sides)
        for what, rate in rates.items():
            table.add(what, workers, f"{rate:,.0f}", ratio(rate / rates["loader"]))
    return table


def padded(rows: list[dict[str, Any]]) -> Any:
    """The tokens of all rows in one tensor, padded with zeros."""
    import torch

    tokens = np.zeros((len(rows), CAPACITY), dtype=np.int32)
    for place, row in enumerate(rows):
        tokens[place, : len(row["input_ids"])] = row["input_ids"]
    return torch.from_numpy(tokens)


def _ours(rows: Any, workers: int) -> Callable[[], Iterator[int]]:
    from torch.utils.data import DataLoader

    def read() -> Iterator[int]:
        for epoch in itertools.count():
            loader = rows.loader(global_batch=BATCH, seed=1, epoch=epoch, collate=padded)
            yield from map(len, DataLoader(loader.torch(), batch_size=None, num_workers=workers))

    return read


def _theirs(rows: Any, workers: int) -> Callable[[], Iterator[int]]:
    from torch.utils.data import DataLoader

    def read() -> Iterator[int]:
        options = {"batch_size": BATCH, "shuffle": True, "drop_last": True, "collate_fn": padded}
        while True:
            yield from map(len, DataLoader(rows, num_workers=workers, **options))

    return read


def _best_rates(sides: dict[str, Callable[[], Iterator[int]]]) -> dict[str, float]:
    """Rows per second of each side, interleaved."""
    rates = [{what: _rate(read()) for what, read in sides.items()} for _ in range(REPEATS)]
    return {what: max(rate[what] for rate in rates) for what in sides}


def _rate(counts: Iterator[int]) -> float:
    next(counts)  # starts workers
    start, rows = time.perf_counter(), 0
    for count in counts:
        rows += count
        if (seconds := time.perf_counter() - start) > SECONDS:
            return rows / seconds
    raise AssertionError("the side ended")
