"""One point: a process with a fault at one operation, its second run, and the comparison."""

from __future__ import annotations

import os
import shutil
import signal
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quire.errors import QuireError
from tests.faults.layer import DEATHS, ERRORS, KINDS, OF_WRITES, Fault, install
from tests.faults.power import entries, lose_power, operations
from tests.faults.trees import tree
from tests.faults.works import Work

TYPED = 7
"""The exit code of a process that ended with one of quire's errors."""
CLEANING = ("unlink", "list", "rmdir")
"""If these fail, what should be removed may stay until the next run."""


@dataclass
class Counts:
    """The faults tried, and the results that equal an undisturbed run."""

    operations: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    tried: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    byte_equal: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        return {
            "operations": {
                work: dict(sorted(kinds.items())) for work, kinds in self.operations.items()
            },
            "operations_in_all": sum(kinds.total() for kinds in self.operations.values()),
            "faults_tried": {work: dict(kinds) for work, kinds in self.tried.items()},
            "faults_tried_in_all": sum(kinds.total() for kinds in self.tried.values()),
            "byte_equal": dict(self.byte_equal),
            "byte_equal_in_all": self.byte_equal.total(),
            "failures": self.failures,
        }


class Enumeration:
    """All points of one task."""

    def __init__(self, work: Work, folder: Path, counts: Counts) -> None:
        self._work, self._folder, self._counts = work, folder, counts
        self._disk, self._journal = folder / "disk", folder / "journal"
        (folder / "before").mkdir(parents=True)
        _finish(lambda: work.prepare(folder / "before"))
        self._before = tree(folder / "before")
        # Here, too, so that whatever is loaded for it is loaded in every process forked from here.
        shutil.copytree(folder / "before", folder / "warm")
        _finish(lambda: _run_and_prove(work, folder / "warm"))
        self._fresh()
        assert self._disturbed(0, "kill") == 0, "undisturbed"
        self.kinds = [done["operation"] for done in operations(self._journal)]
        self._after = tree(self._disk)
        counts.operations[work.name].update(self.kinds)

    def run(self, every: int = 1, start: int = 0) -> Iterator[str]:
        """Try the points, or every n-th of them; yields the name of each."""
        for number, (at, kind) in enumerate(self._points()):
            if (number + start) % every:
                continue
            point = f"{self._work.name}: {kind} at operation {at} ({(*self.kinds, 'end')[at - 1]})"
            self._counts.tried[self._work.name][kind] += 1
            try:
                self._try(at, kind)
            except AssertionError as error:
                self._counts.failures.append(f"{point}: {error}")
            else:
                self._counts.byte_equal[kind] += 1
            yield point

    def _points(self) -> Iterator[tuple[int, str]]:
        for at, operation in enumerate(self.kinds, start=1):
            yield from (
                (at, kind) for kind in KINDS if kind not in OF_WRITES or operation == "write"
            )
        yield from ((len(self.kinds) + 1, kind) for kind in DEATHS if kind.startswith("unsynced"))

    def _try(self, at: int, kind: str) -> None:
        self._fresh()
        synced = entries(self._disk)
        ended = self._disturbed(at, kind)
        is_over = (ended == 0 and kind not in DEATHS) or at > len(self.kinds)
        expected = self._endings(at, kind)
        assert ended in expected, f"ended with {ended}, not {expected}: {self._said()}"
        if kind.startswith("unsynced"):
            lose_power(self._disk, synced, self._journal, kind=kind)
        self._require_whole_or_absent()
        if is_over and not self._work.is_cache:
            lost = self._after.items() - tree(self._disk).items()
            assert not lost, f"it was done, and is lost: {sorted(name for name, _ in lost)}"
        if kind in ERRORS and self.kinds[at - 1] not in CLEANING:
            new = tree(self._disk).keys() - self._before.keys()
            left = [name for name in new if name.endswith(".tmp")]
            assert not left, f"left after the error: {left}"
        again = _forked(lambda: _run_and_prove(self._work, self._disk), self._folder / "said")
        assert again == 0, f"the second run ended with {again}: {self._said()}"
        differing = {name for name, _ in tree(self._disk).items() ^ self._after.items()}
        assert not differing, f"not as undisturbed: {sorted(differing)}"

    def _endings(self, at: int, kind: str) -> tuple[int, ...]:
        if at > len(self.kinds) or kind == "short":
            return (0,)
        # An error may be of no account, as when a folder is to be made that is there already.
        return (-signal.SIGKILL,) if kind in DEATHS else (TYPED, 0)

    def _require_whole_or_absent(self) -> None:
        """Every file under its final name has its old content or its final content."""
        for name, digest in tree(self._disk).items():
            if digest and not name.endswith(".tmp") and "/.quire/" not in name:
                known = (self._before.get(name), self._after.get(name))
                assert digest in known, f"{name} is neither the old nor the new one"

    def _disturbed(self, at: int, kind: str) -> int:
        fault = Fault(disk=str(self._disk), journal=str(self._journal), at=at, kind=kind)

        def run() -> None:
            install(fault)
            self._work.run(self._disk)

        return _forked(run, self._folder / "said")

    def _fresh(self) -> None:
        for path in (self._disk, self._journal):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self._folder / "before", self._disk)
        self._journal.mkdir()

    def _said(self) -> str:
        return (self._folder / "said").read_text()[-2000:]


def _run_and_prove(work: Work, disk: Path) -> None:
    work.run(disk)
    work.prove(disk)


def _finish(act: Callable[[], object]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        act()


def _forked(act: Callable[[], object], said: Path) -> int:
    """The exit status of a process that runs this: 0, that of typed errors, or minus a signal."""
    said.write_text("")
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = 1
    descriptor = os.open(said, os.O_WRONLY | os.O_APPEND)
    try:
        _finish(act)
        code = 0
    except QuireError as error:
        os.write(descriptor, str(error).encode())
        code = TYPED
    except BaseException:
        os.write(descriptor, traceback.format_exc().encode())
    finally:
        os._exit(code)
