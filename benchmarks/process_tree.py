"""A command run to its end: seconds, CPU seconds and peak memory of it and all its children."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_PAUSE = 0.02


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run took."""

    seconds: float
    cpu: float
    """User and system time of all processes: what a busy machine leaves comparable."""
    peak: int
    """The largest sum of the resident memory of all processes at a time, in bytes."""
    output: str


Command = Callable[[Path], Sequence[object]]
"""The arguments of a command, given its own empty folder."""


def run_once(command: Command) -> Run:
    """One run of the command, in a new process and a new folder, which is removed."""
    with tempfile.TemporaryDirectory() as folder:
        words = [str(word) for word in command(Path(folder))]
        before, start = os.times(), time.perf_counter()
        process = subprocess.Popen(  # noqa: S603 - our own commands
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment()
        )
        watched = _Watched(process.pid)
        output, errors = process.communicate()
        seconds, after = time.perf_counter() - start, os.times()
        peak = watched.stop()
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}:\n{errors[-2000:]}")
    cpu = sum(after[2:4]) - sum(before[2:4])
    return Run(seconds=seconds, cpu=cpu, peak=peak, output=output)


def _environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}


def best_runs(repeats: int, *commands: Command) -> list[Run]:
    """The fastest run of each command, interleaved so that noise affects all equally."""
    runs = [[run_once(command) for command in commands] for _ in range(repeats)]
    return [min(column, key=lambda one: one.seconds) for column in zip(*runs, strict=True)]


class _Watched:
    """The peak memory of a process and its children, sampled every few milliseconds."""

    def __init__(self, process: int) -> None:
        self._process, self._peak, self._done = process, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(_PAUSE):
            self._peak = max(self._peak, sum(_resident(one) for one in _tree(self._process)))

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return self._peak


def _tree(process: int) -> list[int]:
    """The process, its children and theirs; one that has just ended has none."""
    found = [process]
    for one in found:
        try:
            tasks = list(Path(f"/proc/{one}/task").iterdir())
            children = [(task / "children").read_text().split() for task in tasks]
        except OSError:
            continue
        found += [int(child) for some in children for child in some]
    return found


def _resident(process: int) -> int:
    """Its resident bytes; pages that forks share are divided among them."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0) * 1024
