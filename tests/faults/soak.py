"""Pack and stream for some minutes with random kills, changing ranks and failing sources.

`python -m tests.faults.soak --minutes 30 --json FILE`. Each round is a new corpus and a new stream;
outputs are compared with inputs by code that is independent of quire. One stream lives through
all rounds, so that memory which grows is seen.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from quire.stream import open_stream
from tests.faults.command_lines import command_line
from tests.faults.soak_pack import SoakedPack
from tests.faults.soak_stream import SoakedStream
from tests.stream.inputs import LENGTHS, ListSource, Numbers, config, shards_of, unique_documents


class LongStream:
    """An endless stream, and this process's memory while it runs."""

    def __init__(self) -> None:
        source = ListSource(shards_of(unique_documents(LENGTHS * 20), 3))
        options = config(seq_len=256, batch_size=8, packing_mode="online", shuffle_buffer_size=100)
        self._stream = open_stream(options, source=source, tokenizer=Numbers())
        self._opened = source.opened
        self.tokens: list[int] = []
        self.memory: list[int] = []

    def go_on(self, batches: int = 300) -> None:
        done = self.tokens[-1] if self.tokens else 0
        done += sum(int(next(self._stream).attention_mask.sum()) for _ in range(batches))
        self._opened.clear()  # the source's own notes
        self.tokens.append(done)
        self.memory.append(_resident())

    def slope(self) -> float:
        """Growth in bytes per million tokens, after the first third."""
        skip = len(self.tokens) // 3
        if len(self.tokens) - skip < 3:
            return 0.0
        return float(np.polyfit(self.tokens[skip:], self.memory[skip:], 1)[0]) * 1e6


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def soak(minutes: float, seed: int, folder: Path) -> dict[str, object]:
    """The counts of everything done in that time."""
    end = time.monotonic() + minutes * 60
    counts: Counter[str] = Counter()
    failures: list[str] = []
    long = LongStream()
    while time.monotonic() < end or not counts["rounds"]:
        place = folder / str(counts["rounds"])
        for kind in (SoakedPack, SoakedStream):
            work = place / kind.__name__
            work.mkdir(parents=True)
            choose = random.Random(f"{seed} {counts['rounds']} {kind.__name__}")
            try:
                kind(work, choose, counts).run()
            except Exception:
                failures.append(f"seed {seed}, round {counts['rounds']}:\n{traceback.format_exc()}")
        shutil.rmtree(place, ignore_errors=True)
        long.go_on()
        counts["rounds"] += 1
    return {
        "minutes": minutes,
        "seed": seed,
        **dict(sorted(counts.items())),
        "kills": counts["kills of pack"] + counts["kills of streams"],
        "tokens": counts["tokens packed"] + counts["tokens streamed"] + long.tokens[-1],
        "memory of the long stream, MB": round(long.memory[-1] / 1e6, 1),
        "memory, bytes more for a million tokens": round(long.slope()),
        "failures": failures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="Write the counts there.")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory, ignore_cleanup_errors=True) as folder:
        found = soak(arguments.minutes, arguments.seed, Path(folder))
    text = json.dumps({"command": command_line("tests.faults.soak"), **found}, indent=1)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    sys.exit(bool(found["failures"]))


if __name__ == "__main__":
    main()
