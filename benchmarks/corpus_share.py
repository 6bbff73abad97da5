"""Where the CPU time of `quire pack` goes: one worker, Qwen3's tokenizer, partitions of 16 MiB.

The functions of each stage are timed in a process of its own, by its CPU time; what a stage calls
counts as that stage, so parquet includes the checksum of a shard. The goal is at most 25 % outside
of tokenizing, parsing and parquet.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.corpus import QWEN3, QWEN3_BYTES
from benchmarks.corpus_texts import machine_texts, write_jsonl
from benchmarks.harness import Table, percent

TITLE = "The CPU time of quire pack, by stage"
COUNTED = ("tokenizing", "loading the tokenizer", "parsing", "parquet")


def run() -> list[Table]:
    table = Table(f"{QWEN3_BYTES // 10**6} MB of this machine's text", ["stage", "CPU", "share"])
    with tempfile.TemporaryDirectory() as folder:
        source = write_jsonl(Path(folder) / "texts.jsonl", machine_texts(QWEN3_BYTES))
        words = [sys.executable, "-W", "ignore", "-m", "benchmarks.corpus_share", source, folder]
        done = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603
    stages: dict[str, float] = json.loads(done.stdout)
    whole = stages.pop("whole")
    for name, seconds in stages.items():
        table.add(name, f"{seconds:.2f} s", percent(seconds / whole, 0))
    table.add("whole", f"{whole:.2f} s", "")
    outside = whole - sum(stages[name] for name in COUNTED)
    what = "outside of tokenizing, parsing and parquet"
    table.add(what, f"{outside:.2f} s", percent(outside / whole, 0))
    return [table]


class Stages:
    """CPU seconds of the functions that were wrapped, by stage; inner calls are not counted."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._is_inside = False

    def time(self, stage: str, owner: Any, name: str) -> None:
        """Replace a function by one that is timed."""
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._is_inside:
                return function(*args, **kwargs)
            self._is_inside, start = True, time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[stage] += time.process_time() - start
                self._is_inside = False

        setattr(owner, name, timed)


def _pack(source: str, folder: str) -> dict[str, float]:
    from quire.corpus import corpus, encoding, job, pack
    from quire.formats import jsonl
    from quire.text.fast_tokenizer import FastTokenizer

    stages = Stages()
    stages.seconds["Python and imports"] = time.process_time()
    stages.time("tokenizing", FastTokenizer, "encode_batch")
    stages.time("loading the tokenizer", corpus, "open_tokenizer")
    stages.time("fingerprint of the tokenizer", pack, "tokenizer_fingerprint")
    stages.time("parsing", jsonl, "parse_record")
    stages.time("parquet", job, "write_shard")
    stages.time("special tokens", encoding, "with_specials")
    stages.time("joining batches", encoding, "_joined")
    stages.time("planning", job, "plan_documents")
    stages.time("gathering", job, "gather")
    out, tokenizer = Path(folder) / "out", str(QWEN3)
    pack.pack_corpus([source], out, tokenizer, max_length=4096, workers=1, partition_size=16 << 20)
    whole = time.process_time()
    rest = whole - sum(stages.seconds.values())
    by_time = dict(sorted(stages.seconds.items(), key=lambda stage: -stage[1]))
    return {**by_time, "everything else": rest, "whole": whole}


if __name__ == "__main__":
    print(json.dumps(_pack(*sys.argv[1:])))
