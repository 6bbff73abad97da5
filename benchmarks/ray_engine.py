"""`pack_corpus(engine="ray")` compared with `workers=2`: the same corpus, two CPUs, partitions and
bytes (which are compared). Start-up is subtracted: for both engines, the time for a few short
documents in as many partitions as there are workers, with Ray already connected. What remains is
reading, encoding, planning and writing, and what an engine adds: assigning partitions, sending the
job, reporting progress.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus_texts import (
    machine_texts,
    standard_library,
    text_bytes,
    write_jsonl,
    write_tokens,
)
from benchmarks.harness import Table, ratio

TITLE = "A corpus on a Ray cluster"
WORKERS = 2
CAPACITY = 4096
PARTITIONS = 8
MANY = 200
REPEATS = 2
LARGE_BYTES = 64_000_000
OBJECT_STORE = 500_000_000
QWEN3 = Path(__file__).resolve().parents[1].parent / "shared" / "tokenizers" / "qwen3"
ENGINES = {"local": {"engine": "local", "workers": WORKERS}, "ray": {"engine": "ray"}}


@dataclass(frozen=True, kw_only=True)
class Work:
    """A corpus, how it becomes tokens, and into how many partitions it is divided."""

    name: str
    source: Path
    few: Path
    tokenizer: str | None
    partitions: int = PARTITIONS

    def pack(self, source: Path, partitions: int, out: Path, engine: str) -> float:
        """Seconds."""
        import quire

        size = max(1, -(-text_bytes(source) // partitions))
        options = {"max_length": CAPACITY, "partition_size": size}
        options["pretokenized"] = self.tokenizer is None
        started = time.perf_counter()
        quire.pack_corpus([source], out, self.tokenizer, **options, **ENGINES[engine])
        return time.perf_counter() - started


def run(size: int = LARGE_BYTES, repeats: int = REPEATS) -> list[Table]:
    with tempfile.TemporaryDirectory() as folder, _cluster() as start_up:
        return [_overhead(_works(Path(folder), size), repeats, start_up)]


@contextmanager
def _cluster() -> Iterator[float]:
    """Seconds that it took to start Ray on this machine with two CPUs."""
    from quire.corpus.engines.ray.cluster import connected

    started = time.perf_counter()
    options: dict[str, Any] = {"num_cpus": WORKERS, "object_store_memory": OBJECT_STORE}
    with connected("local", {**options, "logging_level": logging.ERROR}):
        yield time.perf_counter() - started


def _works(folder: Path, size: int) -> list[Work]:
    few = write_jsonl(folder / "few.jsonl", iter(["a few words"] * 2 * WORKERS))
    few_tokens = write_tokens(folder / "few.parquet", few, rows=1)
    library = write_jsonl(folder / "library.jsonl", standard_library())
    machine = write_jsonl(folder / "machine.jsonl", machine_texts(size))
    tokens = write_tokens(folder / "machine.parquet", machine)
    works = [
        Work(name="machine, bytes", source=machine, few=few, tokenizer="byte"),
        Work(name="machine, tokens given", source=tokens, few=few_tokens, tokenizer=None),
        Work(name="library, bytes", source=library, few=few, tokenizer="byte", partitions=MANY),
    ]
    if QWEN3.is_dir():
        works.append(Work(name="library, Qwen3", source=library, few=few, tokenizer=str(QWEN3)))
    return works


def _overhead(works: list[Work], repeats: int, start_up: float) -> Table:
    table = Table(
        "Ray against processes",
        ["corpus", "MB", "partitions", "local, 2 workers", "Ray, 2 CPUs", "Ray over local"],
        f"Best of {repeats}, interleaved. Ray was started on this machine in {start_up:.0f} s, "
        "which is not in the times. Goal: at most 1.3 times.",
    )
    for work in works:
        local, ray = _best(work, repeats)
        megabytes = f"{text_bytes(work.source) / 1e6:.0f}"
        times = [f"{seconds:.2f} s" for seconds in (local, ray)]
        table.add(work.name, megabytes, work.partitions, *times, ratio(ray / local))
    return table


def _best(work: Work, repeats: int) -> list[float]:
    """Seconds without start-up of each engine, interleaved; their bytes must agree."""
    with tempfile.TemporaryDirectory() as folder:
        # Ray's workers live on between runs: what they import first is start-up, too.
        work.pack(work.few, WORKERS, Path(folder) / "warm", "ray")
        starts, wholes = ({name: [] for name in ENGINES} for _ in range(2))
        for turn in range(repeats):
            for name in ENGINES:
                few, whole = Path(folder) / f"few-{name}-{turn}", Path(folder) / f"{name}-{turn}"
                starts[name].append(work.pack(work.few, WORKERS, few, name))
                wholes[name].append(work.pack(work.source, work.partitions, whole, name))
            local, ray = (_digest(Path(folder) / f"{name}-{turn}") for name in ENGINES)
            assert local == ray, f"{work.name}: the engines wrote different bytes"
    return [min(wholes[name]) - min(starts[name]) for name in ENGINES]


def _digest(out: Path) -> str:
    """The digest of the manifest, which has those of all shards."""
    return hashlib.sha256((out / "manifest.json").read_bytes()).hexdigest()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=LARGE_BYTES, help="of the machine's text")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    arguments = parser.parse_args()
    for table in run(arguments.bytes, arguments.repeats):
        print(table.markdown())
