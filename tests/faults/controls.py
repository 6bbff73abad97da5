"""See every fault's test fail when the protection that it tests is removed.

`python -m tests.faults.controls --json FILE` copies the package to a scratch folder, takes one
protection out of the copy at a time, and runs the one test that must notice. A test that passes all
the same asserts nothing about the fault, and is reported. All of it takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from py_compile import PycInvalidationMode

from tools.fault_lines import numbered

from tests.corpus.command import ROOT
from tests.faults.command_lines import command_line
from tests.faults.protections import PROTECTIONS, Protection

_SECONDS = 400
_NOT_RUN = re.compile(r"(SyntaxError|NameError|ImportError|ModuleNotFoundError)\b")
"""An error that breaks any test, so it proves nothing."""


@dataclass
class Controls:
    """The results for all removed protections."""

    noticed: list[Protection] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, object]:
        """The counts, for JSON."""
        lines = {protection.fault for protection in self.noticed}
        return {
            "command": command_line("tests.faults.controls"),
            "fault_lines": len(numbered()),
            "fault_lines_with_a_protection_removed": len(lines),
            "protections_removed": len(self.noticed) + len(self.failures),
            "tests_that_noticed": len(self.noticed),
            "failures": self.failures,
        }


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one test without its protection."""

    complaint: str = ""
    """Why it is not a control, if it is not one."""
    reason: str = ""
    """The output of the failing test."""


def _outcome(code: int, said: str) -> Outcome:
    if code == 0:
        return Outcome(complaint="passes without it")
    if code != 1 or " failed" not in said:
        return Outcome(complaint=f"did not run without it: {said[-1000:]}")
    reasons = re.findall(r"^E +(.*)", said, re.MULTILINE) or [""]
    for broken in filter(None, map(_NOT_RUN.match, reasons)):
        return Outcome(complaint=f"only saw a {broken.group(1)} in the change itself")
    return Outcome(reason=reasons[0])


class Copy:
    """A copy of the package that may be broken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "src"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "src", self._folder, ignore=ignored)
        # By their content, not by the second in which they were written.
        mode = PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(self._folder, quiet=2, invalidation_mode=mode)
        found = self._python("-c", "import quire; print(quire.__file__)").stdout
        assert Path(found.strip()).is_relative_to(self._folder), f"tests would use {found}"

    def failing(self, tests: Collection[str]) -> set[str]:
        """The tests that fail without any change."""
        done = self._pytest(*(f"tests/{t}" for t in sorted(tests)), seconds=_SECONDS * len(tests))
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stdout[-3000:])
        return set(re.findall(r"^(?:FAILED|ERROR) tests/([^[\s]+)", done.stdout, re.MULTILINE))

    def without(self, protection: Protection) -> Outcome:
        """The output of its test without the protection."""
        with self.changed(protection):
            try:
                done = self._pytest("-x", f"tests/{protection.test}")
            except subprocess.TimeoutExpired:
                return Outcome(complaint=f"took more than {_SECONDS} s without it")
        return _outcome(done.returncode, done.stdout)

    @contextmanager
    def changed(self, protection: Protection) -> Iterator[None]:
        """Remove the protection for the block."""
        file = self._folder / "quire" / protection.file
        whole = file.read_text(encoding="utf-8")
        file.write_text(protection.removed(whole), encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(whole, encoding="utf-8")

    def _pytest(self, *words: str, seconds: int = _SECONDS) -> subprocess.CompletedProcess[str]:
        quiet = ("-q", "--tb=short", "-p", "no:cacheprovider")
        return self._python("-m", "pytest", *quiet, *words, seconds=seconds)

    def _python(self, *words: str, seconds: int = _SECONDS) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self._folder)}
        return subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )


def control(protections: Collection[Protection], copy: Copy) -> Controls:
    """Remove each protection and run its test, which must fail then and pass before."""
    found = Controls()
    failing = copy.failing({protection.test for protection in protections})
    for protection in protections:
        if protection.test in failing:
            outcome = Outcome(complaint="fails as things stand")
        else:
            outcome = copy.without(protection)
        name = f"fault {protection.fault}, {protection.file}: {protection.test}"
        print(f"{name} {outcome.complaint or f'noticed: {outcome.reason:.150}'}", flush=True)
        if outcome.complaint:
            found.failures.append(f"{name} {outcome.complaint}")
        else:
            found.noticed.append(protection)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="Write the counts there.")
    parser.add_argument("--fault", type=int, nargs="*", help="Only these lines.")
    said = parser.parse_args()
    chosen = [one for one in PROTECTIONS if not said.fault or one.fault in said.fault]
    with tempfile.TemporaryDirectory() as folder:
        found = control(chosen, Copy(Path(folder)))
    print(json.dumps(found.to_dict(), indent=1))
    if said.json is not None:
        said.json.write_text(json.dumps(found.to_dict(), indent=1) + "\n")
    return int(bool(found.failures))


if __name__ == "__main__":
    sys.exit(main())
