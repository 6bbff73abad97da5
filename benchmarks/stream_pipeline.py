"""The part of the section on streams that reads files: speed against the bare tokenizer, memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice, product
from pathlib import Path

from benchmarks.harness import Table, best_of, draw_lengths, ratio
from quire.stream import open_stream
from quire.text import ByteTokenizer, Tokenizer, as_tokenizer

SCALE = 10 if os.environ.get("QUIRE_BENCH_SMALL") else 1
CAPACITY = 4096
TEXT_BYTES = 12_000_000 // SCALE
SHARD_BYTES = 10_000_000 // SCALE
QWEN3 = Path(__file__).resolve().parents[1].parent / "shared" / "tokenizers" / "qwen3"
MODES = ("sequential", "bin", "online")


def pipeline() -> Table:
    table = Table(
        f"From files to batches of 8 × {CAPACITY:,}",
        ["tokenizer", "packing", "workers", "prefetch", "tokens a second", "of the bare tokenizer"],
        f"{TEXT_BYTES:,} bytes of the standard library's source in pieces of 1,000 characters, in "
        "jsonl files, shuffled and repeated. The bare tokenizer encodes lists of 256 of the same "
        "texts, already in memory. Batches prefetched while the other side was "
        "timed are consumed before the clock starts. The bare tokenizer of Qwen3 is `tokenizers`, "
        "which uses all cores; the stream encodes with the fast engine. Goal: 10 times, in "
        "one process.",
    )
    with tempfile.TemporaryDirectory() as name:
        texts = _write_texts(Path(name))
        for kind, tokenizer in _tokenizers().items():
            bare, num_tokens = _bare(texts, tokenizer)
            table.add(kind, "none: bare", "", "", _rate(num_tokens, best_of(3, bare)), ratio(1))
            for mode, workers, prefetch in product(MODES, (0, 2), (0, 2)):
                options = _pipeline_options(name, kind, mode, workers, prefetch)
                rate, share = _stream_rate(options, bare, num_tokens)
                table.add(kind, mode, workers, prefetch, f"{rate / 1e6:,.2f} million", ratio(share))
    return table


@cache
def _tokenizers() -> dict[str, Tokenizer]:
    found: dict[str, Tokenizer] = {"byte": ByteTokenizer()}
    if QWEN3.is_dir():
        found["Qwen3"] = as_tokenizer(QWEN3)
    return found


def _write_texts(folder: Path, num_shards: int = 4) -> list[str]:
    """The texts, also written to jsonl files in the folder."""
    texts: list[str] = []
    size = 0
    for file in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("**/*.py")):
        if size > TEXT_BYTES:
            break
        text = file.read_text(encoding="utf-8", errors="ignore")
        pieces = [text[start : start + 1000] for start in range(0, len(text), 1000)]
        size += len(text)
        texts += pieces
    for number in range(num_shards):
        lines = [json.dumps({"text": text}) + "\n" for text in texts[number::num_shards]]
        (folder / f"part-{number}.jsonl").write_text("".join(lines))
    return texts


def _bare(texts: list[str], tokenizer: Tokenizer) -> tuple[Callable[[], None], int]:
    slices = [texts[start : start + 256] for start in range(0, len(texts), 256)]
    num_tokens = sum(int(tokenizer.encode_batch(part).lengths.sum()) for part in slices)

    def encode_all() -> None:
        for part in slices:
            tokenizer.encode_batch(part)

    return encode_all, num_tokens


def _pipeline_options(
    folder: str, kind: str, mode: str, workers: int, prefetch: int
) -> dict[str, object]:
    tokenizer = {"kind": "byte"} if kind == "byte" else {"hf_name_or_path": str(QWEN3)}
    engine = "auto" if kind == "byte" else "fast"
    data = {
        "backend": "files",
        "files": [f"{folder}/*.jsonl"],
        "shuffle_buffer_size": 1000,
        "packing_mode": mode,
        "num_workers": workers,
        "grain_prefetch": prefetch,
        "tokenizer": {**tokenizer, "tokenizer_engine": engine},
    }
    return {"data": data, "train": {"seq_len": CAPACITY, "batch_size": 8}}


def _stream_rate(
    options: dict[str, object], bare: Callable[[], None], num_tokens: int
) -> tuple[float, float]:
    """Tokens per second of the stream, and its share of the bare tokenizer's rate."""
    steps = max(4, num_tokens // (8 * CAPACITY))
    own, other = [], []
    with open_stream(options) as stream:
        for _ in range(2):
            _exhaust(islice(stream, steps))
            before = stream.ledger.tokens.emitted
            seconds = best_of(1, lambda: _exhaust(islice(stream, steps)))
            own.append((stream.ledger.tokens.emitted - before) / seconds)
            other.append(num_tokens / best_of(1, bare))
    return max(own), max(own) / max(other)


def _rate(num_tokens: int, seconds: float) -> str:
    return f"{num_tokens / seconds / 1e6:,.2f} million"


READ_ALL = """
import json, sys
from pathlib import Path
from quire.stream import open_stream

if __name__ == "__main__":
    with open_stream(json.loads(sys.argv[1])) as stream:
        for batch in stream:
            pass
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
"""


def memory() -> Table:
    table = Table(
        "Peak memory of a process that reads a whole stream",
        ["packing", f"{SHARD_BYTES / 1e6:g} MB", f"{SHARD_BYTES / 1e5:g} MB", "more"],
        "Fresh processes, `VmHWM` (`ru_maxrss` would count what the parent had at the fork); the "
        "byte tokenizer, a shuffle window of 1,000 documents, "
        "batches of 8 rows, two of them prefetched.",
    )
    with tempfile.TemporaryDirectory() as name:
        _write_shards(Path(name))
        for mode in MODES:
            small, large = (_peak(name, mode, pattern) for pattern in ("part-0", "part-*"))
            growth = f"{100 * (large / small - 1):+.1f} %"
            table.add(mode, f"{small / 1024:.1f} MiB", f"{large / 1024:.1f} MiB", growth)
    return table


def _write_shards(folder: Path) -> None:
    """A shard, and nine copies of it."""
    lengths = draw_lengths("web", SHARD_BYTES // 1000, CAPACITY).tolist()
    lines = [json.dumps({"text": "abcdefg " * (length // 8 + 1)}) + "\n" for length in lengths]
    (folder / "part-0.jsonl").write_text("".join(lines))
    for number in range(1, 10):
        shutil.copy(folder / "part-0.jsonl", folder / f"part-{number}.jsonl")


def _peak(folder: str, mode: str, pattern: str) -> int:
    options = _pipeline_options(folder, "byte", mode, workers=0, prefetch=2)
    options["data"] |= {"files": [f"{folder}/{pattern}.jsonl"], "repeat": False}
    command = [sys.executable, "-c", READ_ALL, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return int(done.stdout)


def _exhaust(items: Iterable[object]) -> None:
    for _ in items:
        pass
