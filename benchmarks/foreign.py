"""Rows of a plan over Megatron's files, read in random order from the page cache: an index-only
`PackedDataset`, compared with megatron-core's `IndexedDataset`. It gathers the same parts of the
same documents, which it takes from the same plan, into an array of each row, in the same process
and in turns; ours also returns where documents start, and checks ids. Documents have web-like
lengths, rows 4,096 int32 tokens. Times are CPU seconds of this process, since other work may run
beside it. The indexes of 10 and 100 million documents hold simulated lengths: no token is read to
open them or to plan. megatron-core is not among quire's extras; without it, its column is empty.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Table, draw_lengths, ratio

TITLE = "Reading other systems' files in place"
MAX_LENGTH = 4096
NUM_TOKENS = 40_000_000
ROUNDS = 7
BATCH = 64
OPENED = 10_000_000
PLANNED = (10_000_000, 100_000_000)


def run() -> list[Table]:
    with tempfile.TemporaryDirectory() as folder:
        return [_rows(Path(folder)), _opening(Path(folder)), _planning(Path(folder))]


def write_index(prefix: Path, lengths: np.ndarray, tokens: np.ndarray | None = None) -> None:
    """An index of these lengths; without tokens, the file for them is sparse."""
    count, pointers = len(lengths), np.cumsum(lengths, dtype=np.int64) - lengths
    with prefix.with_suffix(".idx").open("wb") as file:
        file.write(struct.pack("<9sQBQQ", b"MMIDIDX", 1, 4, count, count + 1))
        file.write(lengths.astype("<i4").data)
        file.write((pointers * 4).astype("<i8").data)
        file.write(np.arange(count + 1, dtype="<i8").data)
    with prefix.with_suffix(".bin").open("wb") as file:
        if tokens is not None:
            file.write(tokens.astype("<i4").data)
        file.truncate(4 * int(lengths.sum(dtype=np.int64)))


def _lengths(count: int) -> np.ndarray:
    return draw_lengths("web", count, MAX_LENGTH)


def _rows(folder: Path) -> Table:
    from quire import PackedDataset, pack_corpus

    lengths = _lengths(NUM_TOKENS // 500)
    lengths = lengths[: np.searchsorted(np.cumsum(lengths), NUM_TOKENS)]
    ids = np.random.default_rng(0).integers(0, 150_000, int(lengths.sum()), dtype=np.int32)
    write_index(folder / "rows", lengths, ids)
    packed = pack_corpus(
        [folder / "rows.idx"], folder / "plan", max_length=MAX_LENGTH, index_only=True
    )
    dataset = PackedDataset(packed.path)
    order = np.random.default_rng(1).permutation(len(dataset)).tolist()
    batches = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
    ways: dict[str, Callable[[], object]] = {
        "one row at a time": lambda: [dataset[row] is None for row in order],
        f"batches of {BATCH}": lambda: [len(dataset.__getitems__(rows)) for rows in batches],
    }
    peer = _peer(folder, packed.path / "plans" / f"{packed.plan}.arrow", order)
    times = _in_turns([*ways.values(), *([peer] if peer else [])])
    fragments = len(dataset._rows._plan.documents) / len(dataset)
    table = Table(
        "Rows a second",
        ["read", "quire", "megatron-core", "ratio"],
        f"{len(dataset):,} rows of {MAX_LENGTH} tokens, {fragments:.2f} fragments a row; "
        f"best of {ROUNDS} rounds in turns.",
    )
    theirs = len(order) / times[-1] if peer else None
    for name, seconds in zip(ways, times, strict=False):
        mine = len(order) / seconds
        shown = (f"{theirs:,.0f}", ratio(mine / theirs)) if theirs else ("not installed", "")
        table.add(name, f"{mine:,.0f}", *shown)
    return table


def _peer(folder: Path, plan: Path, order: list[int]) -> Callable[[], object] | None:
    """The same rows, gathered from `IndexedDataset`."""
    try:
        from megatron.core.datasets.indexed_dataset import IndexedDataset
    except ImportError:
        return None
    from quire import Plan

    dataset, rows = IndexedDataset(str(folder / "rows")), Plan.load(plan)

    def gather() -> None:
        for row in order:
            np.concatenate([dataset.get(d, start, stop - start) for d, start, stop in rows[row]])

    return gather


def _in_turns(functions: list[Callable[[], object]]) -> list[float]:
    """The least CPU seconds of each."""
    for function in functions:
        function()
    times = [[_cpu(function) for function in functions] for _ in range(ROUNDS)]
    return [min(column) for column in zip(*times, strict=True)]


def _cpu(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def _opening(folder: Path) -> Table:
    write_index(folder / "many", _lengths(OPENED))
    out = _own_process("_plan", folder / "many.idx", folder / "many_plan")
    table = Table(
        "An index of 10 million documents",
        ["step", "CPU seconds", "memory"],
        "Each in a process of its own; memory is its peak over that of a process that has imported "
        "quire. Mapped pages count.",
    )
    table.add("write a plan (`quire pack --index-only`)", *out)
    opened = _own_process("_open_corpus", folder / "many.idx")
    table.add("open the corpus (`open_corpus`)", *opened)
    table.add(
        "open the plan and read a row (`PackedDataset`)",
        *_own_process("_open_rows", folder / "many_plan"),
    )
    return table


def _planning(folder: Path) -> Table:
    table = Table(
        "Planning from an index",
        ["documents", "CPU seconds", "peak memory", "bytes a document", "without mapped files"],
        "`open_corpus(…).lengths()` and the plan of the default strategy, without writing it. "
        "Mapped pages count in the peak; the last column leaves them out.",
    )
    for count in PLANNED:
        write_index(folder / "plan", _lengths(count))
        seconds, memory, mapped = _step("_make_plan", folder / "plan.idx")
        each = (f"{size / count:.0f}" for size in (memory, memory - mapped))
        table.add(f"{count:,}", f"{seconds:.2f}", f"{memory / 1e9:.2f} GB", *each)
    return table


def _own_process(step: str, *arguments: Path) -> tuple[str, str]:
    """CPU seconds and peak memory of one step, to be read."""
    seconds, memory, _ = _step(step, *arguments)
    return f"{seconds:.2f}", f"{memory / 1e9:.2f} GB"


def _step(step: str, *arguments: Path) -> list[float]:
    """CPU seconds, bytes of peak memory, and bytes of files mapped at the end, of one step."""
    words = [sys.executable, "-m", "benchmarks.foreign", step, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(  # noqa: S603 - this module itself
        words, check=True, capture_output=True, text=True, env=environment
    )
    return [float(value) for value in done.stdout.split()]


def _plan(index: str, out: str) -> None:
    from quire import pack_corpus

    pack_corpus([index], out, max_length=MAX_LENGTH, index_only=True)


def _open_corpus(index: str) -> None:
    from quire.formats import open_corpus

    open_corpus(index).tokens(0)


def _open_rows(path: str) -> None:
    from quire import PackedDataset

    dataset = PackedDataset(path)
    dataset[len(dataset) // 2]


def _make_plan(index: str) -> object:
    from quire import make_plan
    from quire.formats import open_corpus

    corpus = open_corpus(index)
    make_plan(corpus.lengths(), MAX_LENGTH)
    return corpus


def _measure(step: str, arguments: list[str]) -> None:
    import quire.corpus
    import quire.packed  # noqa: F401 - before the measurement

    steps: dict[str, Any] = globals()
    peak, mapped, start = _memory("VmHWM"), _memory("RssFile"), time.process_time()
    opened = steps[step](*arguments)  # files stay mapped as long as it lives
    print(time.process_time() - start, _memory("VmHWM") - peak, _memory("RssFile") - mapped)
    del opened


def _memory(name: str) -> int:
    """Bytes; the peak of getrusage begins with that of the process that started this one."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition(f"{name}:")[2].split()[0])


if __name__ == "__main__":
    _measure(sys.argv[1], sys.argv[2:])
