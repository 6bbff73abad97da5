"""Kill workers, nodes and drivers of a Ray cluster repeatedly; the bytes must stay the same.

`python -m tests.cluster.killing --kills 100 --json FILE` does it as often as you like; the tests do
it a little.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

from quire.corpus.engines.ray import RayEngine
from quire.verify.output import verify_output
from tests.cluster.corpora import lines
from tests.cluster.driver import (
    LIMIT_SECONDS,
    kill_a_driver,
    start_driver,
    wait_for_shards,
)
from tests.cluster.jobs import DiesAfterItsCommit, FaultyEngine, TellsItsProcess
from tests.cluster.killer import is_busy, killing_workers
from tests.cluster.nodes import NODE, kill_node, several_nodes, start_nodes
from tests.corpus.corpora import hashes


class KillLoop:
    """Outputs that are packed while something dies, each compared with an undisturbed one."""

    def __init__(self, cluster: Any, folder: Path, seed: int = 0) -> None:
        self._cluster, self._folder, self._chance = cluster, folder, random.Random(seed)
        (folder / "corpus").mkdir()
        self._corpus = lines(folder / "corpus")
        self._corpus.pack(folder / "undisturbed")
        self._expected = hashes(folder / "undisturbed")
        self.kills: Counter[str] = Counter()
        self.outputs: Counter[str] = Counter()
        """Correct outputs, by what died."""
        self.longest_silence = 0.0
        """The longest time in seconds between two messages to a driver."""

    def run(self, kills: int) -> Iterator[str]:
        """Kill at least this often; yields what happened after every output."""
        kinds = {
            "worker": self._workers,
            "worker after its commit": self._after_commits,
            "node": self._node,
            "driver": self._driver,
            "head node": self._head_node,
        }
        for number, kind in enumerate(cycle(kinds)):
            out, marks = self._folder / f"out-{number}", self._folder / f"marks-{number}"
            started = time.monotonic()
            self.kills[kind] += kinds[kind](out, marks)
            assert hashes(out) == self._expected, set(hashes(out).items()) ^ set(self._expected)
            assert verify_output(out).ok
            self.outputs[kind] += 1
            shutil.rmtree(out)
            yield f"{self.kills.total()} kills; a {kind}, {time.monotonic() - started:.0f} s"
            if self.kills.total() >= kills and len(self.outputs) == len(kinds):
                return

    def _workers(self, out: Path, marks: Path) -> int:
        seed = self._chance.random()
        with killing_workers(marks, every=1.0, most=12, seed=seed) as killed:
            self._pack(out, TellsItsProcess, marks)
        return len(killed)

    def _after_commits(self, out: Path, marks: Path) -> int:
        self._pack(out, DiesAfterItsCommit, marks)
        return len(list(marks.iterdir()))

    def _node(self, out: Path, marks: Path) -> int:
        lost = self._cluster.add_node(**NODE)
        self._cluster.wait_for_nodes()
        self._pack(out, TellsItsProcess, marks, lost, at=self._chance.randint(1, 15))
        if lost not in self._cluster.worker_nodes:
            return 1
        kill_node(self._cluster, lost)  # it was never busy
        return 0

    def _pack(self, out: Path, fault: Any, marks: Path, lost: Any = None, at: int = 0) -> None:
        heard, commits = time.monotonic(), 0

        def hear(progress: Any) -> None:
            nonlocal heard, commits
            self.longest_silence = max(self.longest_silence, time.monotonic() - heard)
            commits += progress.commit is not None
            is_there = lost in self._cluster.worker_nodes
            if is_there and commits >= at and is_busy(marks, lost):
                kill_node(self._cluster, lost)
            heard = time.monotonic()

        engine = FaultyEngine(fault=fault, marks=marks, engine=RayEngine())
        self._corpus.pack(out, engine=engine, on_progress=hear)

    def _driver(self, out: Path, marks: Path) -> int:
        kills = 0
        while kill_a_driver(
            self._cluster.address, self._corpus.folder, out, marks, self._chance.randint(1, 9)
        ):
            kills += 1
        return kills

    def _head_node(self, out: Path, marks: Path) -> int:
        """A separate cluster loses its head node; its driver ends; the other cluster continues."""
        doomed = start_nodes(2)
        try:
            driver = start_driver(doomed.address, self._corpus.folder, out, marks)
            killed = wait_for_shards(driver, out, self._chance.randint(1, 9))
            kill_node(doomed, doomed.head_node)
            driver.communicate(timeout=LIMIT_SECONDS)
        finally:
            doomed.shutdown()
        self._corpus.pack(out, engine=RayEngine(), resume=True)
        return int(killed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the counts")
    arguments = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, several_nodes(2) as cluster:
        loop = KillLoop(cluster, Path(folder), arguments.seed)
        for line in loop.run(arguments.kills):
            print(line, flush=True)
    summary = {
        "kills": dict(loop.kills),
        "whole outputs, bytes as undisturbed": dict(loop.outputs),
        "longest silence on a driver, seconds": round(loop.longest_silence, 1),
        "seconds": round(time.monotonic() - started),
    }
    print(json.dumps(summary))
    if arguments.json:
        arguments.json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
