"""One process's executions of one target, under guard; a line of JSON for every block of them.

``python -m tests.fuzz.execution`` is started by `tests.fuzz.campaign`, which outlives its crashes.
Execution n is a function of the target, the seed and n: any one can be run again alone.
"""

from __future__ import annotations

import argparse
import base64
import json
import mmap
import resource
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from quire.errors import QuireError
from tests.fuzz.guards import Guard
from tests.fuzz.target import PREPARING, Subject
from tests.fuzz.targets import load_target

BLOCK = 500
MAX_SECONDS = 5
MAX_MEMORY = 1 << 30
"""Memory that an input may take in addition to that of the process before the first."""
WARM_UP = 200
"""Executions that are not counted; after them everything needed is imported."""


class Hang(BaseException):
    """An execution took too long."""


def choice_of(name: str, seed: int, number: int) -> Random:
    """The choices of one execution."""
    return Random(f"{name} {seed} {number}")


class Executions:
    """The results of the executions of a block."""

    def __init__(self, name: str, subject: Subject, guard: Guard, seed: int) -> None:
        self._name, self._subject, self._guard, self._seed = name, subject, guard, seed
        self.begin()

    def begin(self) -> None:
        """Reset the counts."""
        self.executions = self.accepted = 0
        self.refused: Counter[str] = Counter()
        self.defects: list[dict[str, Any]] = []

    def run(self, number: int) -> None:
        """One execution, counted."""
        given = self._subject.make(choice_of(self._name, self._seed, number))
        self.executions += 1
        problem: BaseException | None = None
        word: str | None = None
        with self._guard.listening():
            signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
            try:
                word = self._subject.read(given)
            except QuireError as error:
                word = type(error).__name__
            except BaseException as error:  # also the panics of Rust, which are no Exception
                problem = error
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        if problem is not None or self._guard.heard:
            self._add_defect(number, given, problem)
        elif word is None:
            self.accepted += 1
        else:
            self.refused[word] += 1

    def _add_defect(self, number: int, given: object, problem: BaseException | None) -> None:
        kind = type(problem).__name__ if problem is not None else "Forbidden"
        said = "; ".join(self._guard.heard) or str(problem)
        self.defects.append(
            {
                "execution": number,
                "kind": kind,
                "message": said[:300].encode("utf-8", "backslashreplace").decode(),
                "where": _where(problem),
                "input": _shown(given),
            }
        )

    def to_json(self) -> str:
        """The counts of the block."""
        names = ("executions", "accepted", "refused", "defects")
        counts = {name: getattr(self, name) for name in names}
        return json.dumps({"target": self._name, **counts})


def _where(problem: BaseException | None) -> str:
    """The innermost place in quire that the error passed through."""
    every = traceback.extract_tb(problem.__traceback__) if problem is not None else []
    frames = [frame for frame in every if not frame.filename.endswith("guards.py")]
    inside = [frame for frame in frames if "quire" in Path(frame.filename).parts] or frames
    return f"{Path(inside[-1].filename).name}:{inside[-1].lineno}" if inside else "?"


def _shown(given: object) -> str:
    if isinstance(given, bytes):
        return "base64 " + base64.b64encode(given[:3000]).decode()
    return ascii(given)[:3000]


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    raise Hang(f"over {MAX_SECONDS} s")


def _limit_memory() -> None:
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MAX_MEMORY, resource.RLIM_INFINITY))


def _unlimit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _warm_up(name: str, subject: Subject, seed: int, count: int) -> None:
    for number in range(min(WARM_UP, count)):
        signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
        try:
            subject.read(subject.make(choice_of(name, seed, -1 - number)))
        except BaseException:  # noqa: S112 - counted when it comes again
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def _blocks(start: int, count: int) -> Iterator[range]:
    for first in range(start, start + count, BLOCK):
        yield range(first, min(first + BLOCK, start + count))


def _execute(name: str, seed: int, numbers: tuple[int, int], folder: Path, now: mmap.mmap) -> None:
    """Run the executions ``start`` to ``start + count`` and print a line for each block."""
    start, count = numbers
    now[:] = PREPARING.to_bytes(8, "little")
    home = folder / name / "home"
    home.mkdir(parents=True)
    subject = load_target(name).prepare(home)
    if not name.startswith("control_"):
        _warm_up(name, subject, seed, count)
    executions = Executions(name, subject, Guard(home, home.parent / "outside"), seed)
    _limit_memory()
    for block in _blocks(start, count):
        executions.begin()
        for number in block:
            now[:] = number.to_bytes(8, "little")
            executions.run(number)
        print(executions.to_json(), flush=True)
    _unlimit_memory()


def main() -> None:
    """Run executions of some targets, one after the other."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names")
    for name in ("seed", "start", "count"):
        parser.add_argument(name, type=int)
    parser.add_argument("folder", type=Path)
    said = parser.parse_args()
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", RuntimeWarning)  # numpy's word for a number that ran over
    signal.signal(signal.SIGALRM, _on_alarm)
    with (said.folder / "number").open("r+b") as file, mmap.mmap(file.fileno(), 8) as now:
        for name in said.names.split(","):
            _execute(name, said.seed, (said.start, said.count), said.folder, now)


if __name__ == "__main__":
    main()
