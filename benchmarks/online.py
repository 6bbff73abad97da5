"""`OnlinePacker` sees a stream through a buffer of documents; `best_fit` sees everything. The peer
is a first-fit window, common in packers of streams: first-fit decreasing over the same number of
documents at a time. Documents longer than a row are cut. For `OnlinePacker`, "full places" counts
the rows emitted before the last flush, as in a long stream; the columns for `best_fit` and the
window count all of their rows. There are 40,000 documents unless stated otherwise, 200,000 at
131,072.

Microseconds are CPU time of one `add`, rows included, after the buffer has filled, the best of
several runs. The hard lengths were chosen so that no exact fill exists (multiples of a number,
narrow ranges, values just over a fraction of the row) and every search runs to its limit.
"""

from __future__ import annotations

from time import process_time

import numpy as np

import quire
from benchmarks.harness import Table, draw_lengths, percent
from quire.plan.online import OnlinePacker

TITLE = "Online packing"
KINDS = ("web", "chat", "instructions", "uniform")
BUFFERS = (16, 64, 256, 1000)


def run() -> list[Table]:
    return [utilization(), near_half(), long_rows(), capped(), speed(), worst_cases()]


def utilization() -> Table:
    table = Table(
        "Full places",
        ["max_length", "lengths", *[f"buffer {n}" for n in BUFFERS], "best_fit", *_window_names()],
    )
    for max_length in (2048, 4096, 8192):
        for kind in KINDS:
            lengths = clipped(kind, 40_000, max_length)
            table.add(f"{max_length:,}", kind, *_compared(lengths, max_length, BUFFERS))
    return table


def near_half() -> Table:
    table = Table(
        "Full places where about two documents fill a row of 4,096",
        ["lengths", *[f"buffer {n}" for n in BUFFERS], "best_fit", *_window_names()],
    )
    rng = np.random.default_rng(1)
    half = {
        "normal, mean 1/2, deviation 1/20": rng.normal(2048, 205, 40_000).astype(np.int64),
        "normal, mean 0.45, deviation 1/10": rng.normal(1843, 410, 40_000).astype(np.int64),
        "uniform on 0.3..0.7": rng.integers(1229, 2868, 40_000),
        "uniform on 0.2..0.6": rng.integers(819, 2458, 40_000),
        "uniform on 1..0.8": rng.integers(1, 3277, 40_000),
        "half less one or half plus one": rng.choice([2047, 2049], 40_000),
    }
    for name, lengths in half.items():
        table.add(name, *_compared(lengths.clip(1, 4096), 4096, BUFFERS))
    return table


def long_rows() -> Table:
    table = Table(
        "Full places of long rows, which small buffers would starve",
        ["max_length", "lengths", *[f"buffer {n}" for n in BUFFERS], "best_fit", *_window_names()],
    )
    for max_length, count in ((32_768, 40_000), (131_072, 200_000)):
        for kind in ("instructions", "web"):
            lengths = clipped(kind, count, max_length)
            table.add(f"{max_length:,}", kind, *_compared(lengths, max_length, BUFFERS))
    return table


def capped() -> Table:
    table = Table(
        "Full places with a cap on documents per row, web at 4,096 (4.4 fill a row)",
        ["cap", "buffer 64", "buffer 1000", "best_fit", "no plan is fuller"],
    )
    lengths = clipped("web", 40_000, 4096)
    for cap in (3, 4, 5, 6, 8):
        offline = quire.make_plan(lengths, 4096, max_documents_per_row=cap).utilization
        shares = [steady_share(lengths, 4096, n, max_documents_per_row=cap) for n in (64, 1000)]
        limit = min(1, float(lengths.mean()) * cap / 4096)
        table.add(cap, *map(percent, [*shares, offline, limit]))
    return table


def speed() -> Table:
    table = Table(
        "Microseconds per document",
        ["max_length", "lengths", *[f"buffer {n}" for n in BUFFERS]],
    )
    for max_length in (2048, 4096, 8192, 131_072):
        for kind in KINDS:
            lengths = clipped(kind, 12_000, max_length)
            table.add(f"{max_length:,}", kind, *[_micros(lengths, max_length, n) for n in BUFFERS])
    return table


def worst_cases(max_length: int = 8191) -> Table:
    table = Table(
        f"Microseconds per document on hard lengths, rows of {max_length:,}",
        ["lengths", *[f"buffer {n}" for n in BUFFERS]],
    )
    for name, lengths in hard_lengths(max_length).items():
        table.add(name, *[_micros(lengths, max_length, n) for n in BUFFERS])
    return table


def hard_lengths(max_length: int, count: int = 8000) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    quarter, third, half = max_length // 4, max_length // 3, max_length // 2
    hard = {
        "all half plus one": np.full(count, half + 1),
        "all a quarter plus one": np.full(count, quarter + 1),
        "uniform on (1/3, 1/2]": rng.integers(third + 1, half + 1, count),
        "uniform on (1/4, 1/2]": rng.integers(quarter + 1, half + 1, count),
        "uniform on 30 values over 1/4": rng.integers(quarter + 1, quarter + 31, count),
        "uniform on 30 values over 1/5": rng.integers(
            max_length // 5 + 1, max_length // 5 + 31, count
        ),
        "half less one or half plus one": rng.choice([half - 1, half + 1], count),
        "quarter plus one or plus two": rng.choice([quarter + 1, quarter + 2], count),
        "normal, mean 0.4, deviation 1/10": rng.normal(0.4, 0.1, count) * max_length,
        "multiples of 7, up to 1/3": 7 * rng.integers(1, third // 7, count),
        "multiples of 512": 512 * rng.integers(1, 9, count),
        "multiples of 3, 3 % plus one": 3 * rng.integers(third // 10, third // 3, count)
        + (rng.random(count) < 0.03),
        "uniform on 1..64": rng.integers(1, 65, 40_000),
        "all 1": np.ones(60_000),
    }
    return {name: lengths.astype(np.int64).clip(1, max_length) for name, lengths in hard.items()}


def clipped(kind: str, count: int, max_length: int) -> np.ndarray:
    return np.minimum(draw_lengths(kind, count, max_length), max_length)


def steady_share(lengths: np.ndarray, max_length: int, buffer_size: int, **options) -> float:
    packer = OnlinePacker(max_length, buffer_size, **options)
    tokens = rows = 0
    for length in lengths.tolist():
        for row in packer.add(length, length):
            tokens += sum(row)
            rows += 1
    return tokens / (rows * max_length)


def window_share(lengths: np.ndarray, max_length: int, buffer_size: int) -> float:
    starts = range(0, len(lengths), buffer_size)
    rows = sum(first_fit_rows(lengths[i : i + buffer_size].tolist(), max_length) for i in starts)
    return float(lengths.sum()) / (rows * max_length)


def first_fit_rows(lengths: list[int], max_length: int) -> int:
    free: list[int] = []
    for length in sorted(lengths, reverse=True):
        for row, space in enumerate(free):
            if space >= length:
                free[row] -= length
                break
        else:
            free.append(max_length - length)
    return len(free)


def _window_names() -> list[str]:
    return ["window 64", "window 1000"]


def _compared(lengths: np.ndarray, max_length: int, buffers: tuple[int, ...]) -> list[str]:
    shares = [steady_share(lengths, max_length, size) for size in buffers]
    shares.append(quire.make_plan(lengths, max_length).utilization)
    shares += [window_share(lengths, max_length, size) for size in (64, 1000)]
    return [percent(share) for share in shares]


def _micros(lengths: np.ndarray, max_length: int, buffer_size: int, repeats: int = 5) -> str:
    return f"{min(_one_run(lengths.tolist(), max_length, buffer_size) for _ in range(repeats)):.1f}"


def _one_run(lengths: list[int], max_length: int, buffer_size: int) -> float:
    packer = OnlinePacker(max_length, buffer_size)
    add = packer.add
    num_first = min(2 * buffer_size, len(lengths) // 2)
    for key, length in enumerate(lengths[:num_first]):
        add(key, length)
    start = process_time()
    for key, length in enumerate(lengths[num_first:]):
        add(key, length)
    return 1e6 * (process_time() - start) / (len(lengths) - num_first)
