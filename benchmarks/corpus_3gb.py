"""`quire pack` over 3 GB of jsonl with bytes as tokens and one document of 10 million tokens in the
middle: the command once for each partition size, with two workers. Runs only by name (`python -m
benchmarks corpus_3gb`): it takes minutes and 5 GB of disk space.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.corpus import megabytes, quire_pack
from benchmarks.corpus_texts import machine_texts, write_jsonl
from benchmarks.harness import Table, percent
from benchmarks.process_tree import run_once

TITLE = "3 GB in bounded memory"
TEXT_BYTES = 3_000_000_000
PART_BYTES = 100_000_000
LONG_DOCUMENT = 10_000_000
PARTITION_SIZES = (64 << 20, 256 << 20)
WORKERS = 2


def run() -> list[Table]:
    table = Table(
        f"{TEXT_BYTES / 1e9:.0f} GB of text",
        [
            "partition size",
            "partitions",
            "time",
            "CPU",
            "tokens",
            "tokens a second",
            "full",
            "peak",
        ],
        f"{PART_BYTES / 1e6:.0f} MB of this machine's text, again and again; {WORKERS} workers. "
        "256M is the default. The peak is of all processes together.",
    )
    with tempfile.TemporaryDirectory() as folder:
        source = write_corpus(Path(folder))
        for size in PARTITION_SIZES:
            _add(table, source, size)
    return [table]


def _add(table: Table, source: Path, size: int) -> None:
    print(f"    load average {os.getloadavg()[0]:.1f}", flush=True)
    taken = run_once(partial(quire_pack, WORKERS, "byte", source, partition_size=size))
    summary = json.loads(taken.output.splitlines()[-1])
    rate = f"{summary['tokens'] / taken.seconds / 1e6:.1f} million"
    times = [f"{taken.seconds:.0f} s", f"{taken.cpu:.0f} s"]
    full = percent(summary["utilization"], 2)
    table.add(
        f"{size >> 20}M",
        summary["shards"],
        *times,
        f"{summary['tokens']:,}",
        rate,
        full,
        megabytes(taken),
    )


def write_corpus(folder: Path) -> Path:
    """The file, with the long document in its middle."""
    part = write_jsonl(folder / "part.jsonl", machine_texts(PART_BYTES)).read_bytes()
    words = random.Random(0).choices(  # noqa: S311 - text, no secret
        ["a", "quire", "of", "sheets\n"], k=LONG_DOCUMENT
    )
    long = json.dumps({"text": " ".join(words)[:LONG_DOCUMENT]}).encode() + b"\n"
    path, times = folder / "corpus.jsonl", -(-TEXT_BYTES // len(part))
    with path.open("wb") as file:
        for number in range(times):
            file.write(part)
            file.write(long if number == times // 2 else b"")
    return path
