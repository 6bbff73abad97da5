"""A thread that kills workers while a block runs."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def killing_workers(marks: Path, every: float, most: int, seed: float = 0) -> Iterator[list[int]]:
    """Kill a process that has recorded its id, now and then; yields the killed ones."""
    marks.mkdir(exist_ok=True)
    over, killed = threading.Event(), []
    thread = threading.Thread(
        target=_kill, args=(marks, every, most, random.Random(seed), over, killed)
    )
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def _kill(
    marks: Path,
    every: float,
    most: int,
    chance: random.Random,
    over: threading.Event,
    killed: list[int],
) -> None:
    while len(killed) < most and not over.wait(chance.uniform(0.3, 1.7) * every):
        for mark in sorted(marks.glob("*.pid"))[:1]:
            mark.unlink(missing_ok=True)
            try:
                os.kill(int(mark.stem), signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.append(int(mark.stem))


def is_busy(marks: Path, node: Any) -> bool:
    """Whether a job on that node has left a mark and not removed it."""
    for mark in marks.glob("*.pid"):
        try:
            if mark.read_text() == node.node_id:
                return True
        except FileNotFoundError:
            continue
    return False
