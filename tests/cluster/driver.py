"""A driver process to be killed: `python -m tests.cluster.driver ADDRESS INPUT OUT MARKS`."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from quire.corpus.engines.ray import RayEngine
from tests.cluster.corpora import Corpus
from tests.cluster.jobs import FaultyEngine, TellsItsProcess
from tests.cluster.nodes import ROOT

LIMIT_SECONDS = 120


def main(address: str, folder: str, out: str, marks: str) -> None:
    engine = FaultyEngine(
        fault=TellsItsProcess, marks=Path(marks), engine=RayEngine(address=address)
    )
    Corpus(folder=Path(folder)).pack(Path(out), engine=engine, resume=True)


def kill_a_driver(address: str, folder: Path, out: Path, marks: Path, new_shards: int) -> bool:
    """Start a driver and kill it after this many new shards; whether it was still running."""
    driver = start_driver(address, folder, out, marks)
    was_running = wait_for_shards(driver, out, new_shards)
    driver.kill()
    error = driver.communicate(timeout=30)[1]
    assert was_running or driver.returncode == 0, error
    return was_running


def start_driver(address: str, folder: Path, out: Path, marks: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.cluster.driver", address, folder, out, marks]
    return subprocess.Popen(list(map(str, words)), cwd=ROOT, stderr=subprocess.PIPE, text=True)


def wait_for_shards(driver: subprocess.Popen[str], out: Path, count: int) -> bool:
    """Whether the driver still runs after this many new shards."""
    enough = _num_shards(out) + count
    deadline = time.monotonic() + LIMIT_SECONDS
    while driver.poll() is None and _num_shards(out) < enough:
        if time.monotonic() > deadline:
            driver.kill()
            raise TimeoutError(f"no progress for so long: {driver.communicate(timeout=30)[1]}")
        time.sleep(0.02)
    return driver.poll() is None


def _num_shards(out: Path) -> int:
    return len(list(out.glob("data/*.parquet")))


if __name__ == "__main__":
    main(*sys.argv[1:])
