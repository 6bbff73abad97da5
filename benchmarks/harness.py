"""What every benchmark shares: length distributions, best-of-N timing, peak memory, tables."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass
class Table:
    """One table of results with the question that it answers."""

    title: str
    header: Sequence[str]
    note: str = ""
    rows: list[Sequence[object]] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        self.rows.append(cells)
        print("   ", *cells, sep="  ", flush=True)

    def markdown(self) -> str:
        lines = [f"### {self.title}", "", *([self.note, ""] if self.note else [])]
        lines += [_line(self.header), _line(["---"] * len(self.header))]
        return "\n".join(lines + [_line(row) for row in self.rows]) + "\n"


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def best_of(repeats: int, function: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls, the one that was disturbed least."""
    times = []
    for _ in range(repeats):
        gc.collect()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def cpu_best_of(repeats: int, function: Callable[[], object]) -> float:
    """Seconds of this process's CPU in the cheapest of several calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def best_of_interleaved(repeats: int, *functions: Callable[[], object]) -> list[float]:
    """The fastest call of each function, interleaved so that noise affects all equally."""
    times = [[best_of(1, function) for function in functions] for _ in range(repeats)]
    return [min(column) for column in zip(*times, strict=True)]


def peak_bytes(function: Callable[[], object]) -> int:
    """Growth of this process's resident memory while the function runs, sampled at 1 kHz.

    Not tracemalloc: numpy and Arrow allocate memory that it does not see.
    """
    gc.collect()
    before = peak = _resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = function()
        peak = max(peak, _resident())
    finally:
        done.set()
        watcher.join()
    del result
    return peak - before


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def draw_lengths(kind: str, num_documents: int, max_length: int, seed: int = 0) -> np.ndarray:
    """Document lengths like those of a kind of corpus, at least 1, not cut at ``max_length``."""
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        return rng.integers(1, max_length + 1, num_documents)
    mean, sigma = {"web": (6.345, 1.092), "chat": (7.0, 0.42), "instructions": (4.7, 0.85)}[kind]
    return np.maximum(1, rng.lognormal(mean, sigma, num_documents).astype(np.int64))


def percent(fraction: float, digits: int = 3) -> str:
    return f"{100 * fraction:.{digits}f} %"


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def ratio(value: float) -> str:
    return f"{value:.2f} ×" if value < 100 else f"{value:,.0f} ×"
