"""Time the same calls on two checkouts of quire, in alternation: is anything slower than before?

    git worktree add ../old a0b0e6e
    python -m tools.before_after ../old --rounds 5

Every case runs in a new process of this interpreter with the sources of one checkout, and reports
the CPU seconds of its fastest repeat; the table has the least of all rounds and their ratio.
Cases use only what both checkouts have.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HEAD = """
import json, os, sys, tempfile, time, warnings
import numpy as np
warnings.simplefilter("ignore")
draw = np.random.default_rng(0)

def best(repeats, call):
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    print(min(times))

def lengths(mean, sigma, count):
    return np.minimum(draw.lognormal(mean, sigma, count).astype(int) + 1, 4096)

def files(count, words):
    folder = tempfile.mkdtemp()
    with open(f"{folder}/a.jsonl", "w") as file:
        for n in range(count):
            file.write(json.dumps({"text": f"word {n} " * words}) + "\\n")
    return f"{folder}/a.jsonl"
"""
STREAM = """
from quire.stream import open_stream
path = files({count}, {words})
def run():
    data = dict(files=[path], repeat=False, packing_mode="{mode}", tokenizer=dict(kind="byte"))
    with open_stream(dict(data=data, train=dict(seq_len=1024, batch_size=8))) as stream:
        for _ in stream: pass
best(3, run)
"""
ROWS = """
from quire.collate import DataCollatorForCausalLM, PaddingFreeCollator
from quire import ByteTokenizer
ids = draw.integers(3, 250, (8, 4096))
rows = [dict(input_ids=row, document_starts=np.arange(0, 4096, 512)) for row in ids]
"""
SAMPLES = """
from quire.vision import PackedVLDataset
sizes = lengths(6.5, 0.6, 20_000).tolist()
samples = [dict(length=n) for n in sizes]
"""
CASES = {
    "plan, 1M web": (
        "import quire\nx = lengths(6.345, 1.092, 1_000_000)\n"
        "best(5, lambda: quire.make_plan(x, 4096))"
    ),
    "plan, 1M chat": (
        "import quire\nx = lengths(7.0, 0.42, 1_000_000)\nbest(5, lambda: quire.make_plan(x, 4096))"
    ),
    "plan, 10,000 web": (
        "import quire\nx = lengths(6.345, 1.092, 10_000)\n"
        "best(50, lambda: quire.make_plan(x, 4096))"
    ),
    "plan, tight, 20,000 chat": (
        "import quire\nx = lengths(7.0, 0.42, 20_000)\n"
        "best(1, lambda: quire.make_plan(x, 4096, 'tight'))"
    ),
    "balance, 100,000 rows": (
        "import quire\nplan = quire.make_plan(lengths(6.3, 1.1, 400_000), 4096)\n"
        "best(30, lambda: quire.balance(plan, 8, 8))"
    ),
    "pack_dataset, 50,000 texts": (
        "import quire\nx = [dict(text='a word ' * int(n)) for n in draw.integers(1, 60, 50_000)]\n"
        "best(3, lambda: quire.pack_dataset(x, 'byte', max_length=1024))"
    ),
    "pack_dataset, 50,000 token lists": (
        "import quire, pyarrow as pa\n"
        "x = pa.table(dict(input_ids=[[5] * int(n) for n in draw.integers(1, 400, 50_000)]))\n"
        "best(3, lambda: quire.pack_dataset(x, max_length=1024))"
    ),
    "pack_texts, 1,000 texts": (
        "from quire.blocks import BlockOptions, pack_texts\n"
        "x = ['a word ' * int(n) for n in draw.integers(1, 60, 1_000)]\n"
        "o = BlockOptions(max_length=1024, packed=True, packing_strategy='best_fit')\n"
        "best(10, lambda: pack_texts(x, 'byte', o))"
    ),
    "pack_corpus, 20 MB, bytes": (
        "import quire\npath = files(20_000, 100)\n"
        "best(2, lambda: quire.pack_corpus([path], tempfile.mkdtemp() + '/o', 'byte', "
        "max_length=4096))"
    ),
    "stream, sequential, long": STREAM.format(count=10_000, words=100, mode="sequential"),
    "stream, bin, long": STREAM.format(count=10_000, words=100, mode="bin"),
    "stream, online, long": STREAM.format(count=10_000, words=100, mode="online"),
    "stream, bin, short": STREAM.format(count=40_000, words=6, mode="bin"),
    "collate, causal LM": ROWS
    + "c = DataCollatorForCausalLM(ByteTokenizer(), return_tensors='np')\n"
    "best(200, lambda: c(rows))",
    "collate, padding-free": ROWS
    + "c = PaddingFreeCollator(return_tensors='np')\nbest(200, lambda: c(rows))",
    "vision, known lengths": SAMPLES
    + "best(3, lambda: list(PackedVLDataset(samples, packing_length=4097)))",
}


def seconds(case: str, tree: Path) -> float:
    """CPU seconds of a case with the sources of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(  # noqa: S603 - the cases above
        [sys.executable, "-c", HEAD + CASES[case]],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{case} in {tree}: {done.stderr[-800:]}")
    return float(done.stdout.split()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="cases whose names contain this")
    given = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    print("| case | before, ms | after, ms | after / before |\n|---|---|---|---|")
    for case in CASES:
        if given.only and given.only not in case:
            continue
        rounds = [(seconds(case, given.before), seconds(case, here)) for _ in range(given.rounds)]
        before, after = (min(column) * 1000 for column in zip(*rounds, strict=True))
        print(f"| {case} | {before:.2f} | {after:.2f} | {after / before:.2f} |", flush=True)


if __name__ == "__main__":
    main()
