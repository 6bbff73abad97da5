"""Executions of one target, in a new process after every crash or hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.target import PREPARING

_MEMORY = Path("/dev/shm")  # noqa: S108 - a faster place for the same files
_STUCK_SECONDS = 30
"""After this, a process hangs where no alarm can interrupt it: in C++ or Rust."""
_START_SECONDS = 300
"""A busy machine may take long to import what a target's first execution needs."""
_PER_PROCESS = 50_000
_MOST_DEATHS = 10
"""The most processes for one target; each costs seconds."""


class Campaign:
    """The counts of one target."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self._seed = name, seed
        self.executions = self.accepted = self.processes = 0
        self.refused: Counter[str] = Counter()
        self.defects: dict[str, dict[str, Any]] = {}
        self.seconds = 0.0

    def run(self, count: int) -> Campaign:
        """Make the executions 0 to ``count``."""
        began = time.monotonic()
        number = 0
        while number < count and self._num_deaths < _MOST_DEATHS:
            number = self._process(number, min(_PER_PROCESS, count - number))
        self.seconds = time.monotonic() - began
        return self

    def to_dict(self) -> dict[str, Any]:
        """For JSON; defects are grouped by their kind and place."""
        return {
            "executions": self.executions,
            "accepted": self.accepted,
            "refused": dict(sorted(self.refused.items())),
            "defects": sum(group["count"] for group in self.defects.values()),
            "kinds_of_defects": list(self.defects.values()),
            "processes": self.processes,
            "seconds": round(self.seconds, 1),
        }

    @property
    def _num_deaths(self) -> int:
        return sum(g["count"] for g in self.defects.values() if g["where"] == "process")

    def _process(self, start: int, count: int) -> int:
        """The number of the first execution that was not made."""
        self.processes += 1
        life = _run_process([self.name], self._seed, start, count)
        done = start + sum(self.add(block) for block in life.blocks)
        if life.reason is None:
            return done
        stopped = life.stopped
        if not life.blocks and stopped == start and "exit" in life.reason:
            raise RuntimeError(life.errors)
        if stopped > done:  # what the process did not live to tell is done once more
            self._process(done, stopped - done)
        self.executions += 1
        self._add_defect(
            {
                "execution": stopped,
                "kind": life.reason,
                "message": life.errors[-300:],
                "where": "process",
            }
        )
        return stopped + 1

    def add(self, block: dict[str, Any]) -> int:
        """Count a block, and return how many executions it has."""
        self.executions += block["executions"]
        self.accepted += block["accepted"]
        self.refused.update(block["refused"])
        for defect in block["defects"]:
            self._add_defect(defect)
        return int(block["executions"])

    def _add_defect(self, defect: dict[str, Any]) -> None:
        key = f"{defect['kind']} {defect['where']}"
        self.defects.setdefault(key, {**defect, "count": 0})["count"] += 1


@dataclass(frozen=True, kw_only=True)
class _Life:
    """What a process printed, and how it ended."""

    blocks: list[dict[str, Any]]
    reason: str | None
    """Why it failed, if it did."""
    stopped: int
    """Its last execution."""
    errors: str


def survey(names: list[str], count: int, seed: int = 0) -> dict[str, Campaign]:
    """A few executions of many targets in one process, because starting one is slow."""
    life = _run_process(names, seed, 0, count)
    campaigns = {name: Campaign(name, seed) for name in names}
    for block in life.blocks:
        campaigns[block["target"]].add(block)
    if life.reason is not None:
        raise RuntimeError(f"{life.reason} at execution {life.stopped}: {life.errors}")
    return campaigns


def _run_process(names: list[str], seed: int, start: int, count: int) -> _Life:
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        now = folder / "number"
        now.write_bytes(PREPARING.to_bytes(8, "little"))
        reason = _watched([",".join(names), *map(str, (seed, start, count)), name], now)
        stopped = _number(now)
        return _Life(
            blocks=[json.loads(line) for line in (folder / "said").read_text().splitlines()],
            reason=reason,
            stopped=start if stopped == PREPARING else stopped,
            errors=(folder / "errors").read_text(errors="replace")[-2000:],
        )


def _watched(arguments: list[str], now: Path) -> str | None:
    """Why the process failed, if it did."""
    folder = now.parent
    with (folder / "said").open("wb") as said, (folder / "errors").open("wb") as errors:
        command = [sys.executable, "-m", "tests.fuzz.execution", *arguments]
        process = subprocess.Popen(command, stdout=said, stderr=errors)
    seen, since = PREPARING, time.monotonic()
    while process.poll() is None:
        time.sleep(0.05)
        if (number := _number(now)) != seen:
            seen, since = number, time.monotonic()
        elif time.monotonic() - since > (_START_SECONDS if seen == PREPARING else _STUCK_SECONDS):
            process.kill()
            process.wait()
            return "stuck"
    if process.returncode < 0:
        return f"crash {signal.Signals(-process.returncode).name}"
    return f"exit {process.returncode}" if process.returncode else None


def _number(now: Path) -> int:
    return int.from_bytes(now.read_bytes(), "little")
