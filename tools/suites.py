"""`make suites` writes what both suites cost and cover: docs/reliability/suites.json.

`python -m tools.suites docs/reliability/suites.json [test] [test-slow]`. Each is a target of make
and runs twice: once to be timed, and once with every process measured, as measuring takes time
too; `--cover` measures only. What the file says of other suites stays. All tests are both suites,
so what the whole covers is what either of them does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
SUITES = ("test", "test-slow")
QUICK = "test"
CONFIG = """\
[run]
branch = true
parallel = true
concurrency = thread,multiprocessing
sigterm = true
patch = _exit
data_file = {folder}/data
source_pkgs = quire
disable_warnings = no-data-collected, module-not-imported, module-not-measured
"""

Suite = dict[str, Any]
Branches = dict[str, list[list[int]]]
"""Those that were taken, by file."""


def main(target: Path, suites: list[str], *, cover_only: bool = False) -> int:
    """Write the counts after each suite; 1 if a test failed."""
    told = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    known: dict[str, Suite] = {**told.get("suites", {})}
    taken: dict[str, Branches] = {}
    for suite in suites:
        if not cover_only:
            known[suite] = _timed(suite)
        taken[suite], branches = _measured(suite)
        known.setdefault(suite, {})["branches taken"] = num_taken([taken[suite]])
        told = {"command": "make suites", "cores": os.cpu_count(), "branches": branches}
        if set(SUITES) <= set(taken):
            told["branches that all tests take"] = num_taken(taken.values())
            share = 100 * num_taken([taken[QUICK]]) / num_taken(taken.values())
            known[QUICK]["percent of the branches that the whole takes"] = round(share, 2)
        told["suites"] = known
        target.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        print(suite, known[suite], flush=True)
    return int(any(known[suite].get("failed") for suite in suites))


def num_taken(parts: Iterable[Branches]) -> int:
    """How many branches any of the parts took.

    >>> num_taken([{"a.py": [[1, 2]]}, {"a.py": [[1, 2], [1, 3]], "b.py": [[7, 8]]}])
    3
    """
    return len(
        {(f, *branch) for part in parts for f, branches in part.items() for branch in branches}
    )


def _timed(suite: str) -> Suite:
    """Run only this suite: its tests, and the seconds of all its processes."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        more = os.environ.get("PYTEST_ADDOPTS", "")
        _make(suite, PYTEST_ADDOPTS=f"{more} --junitxml={results}")
        wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        return {**counts_of(results), "cpu seconds": round(cpu), "wall seconds": round(wall)}


def counts_of(results: Path) -> Suite:
    """How many tests the file of pytest's results holds."""
    totals = ElementTree.parse(results).getroot().find("testsuite")  # noqa: S314 - pytest wrote it
    if totals is None:
        raise SystemExit(f"{results} holds no results")
    found = {name: int(totals.attrib[name]) for name in ("tests", "skipped", "failures", "errors")}
    failed = found.pop("failures") + found.pop("errors")
    return {**found, "failed": failed}


def _measured(suite: str) -> tuple[Branches, int]:
    """Run it with every process measured; which branches were taken, of how many."""
    with tempfile.TemporaryDirectory() as folder:
        config, report = Path(folder) / "coveragerc", Path(folder) / "report.json"
        config.write_text(CONFIG.format(folder=folder), encoding="utf-8")
        _make(suite, COVERAGE_PROCESS_START=str(config))
        coverage = [sys.executable, "-m", "coverage"]
        for words in (["combine", "-q"], ["json", "-q", "-i", "-o", str(report)]):
            subprocess.run(  # noqa: S603
                [*coverage, *words, f"--rcfile={config}"], cwd=ROOT, check=True
            )
        found = json.loads(report.read_text(encoding="utf-8"))
    taken = {file: each["executed_branches"] for file, each in found["files"].items()}
    return taken, int(found["totals"]["num_branches"])


def _make(suite: str, **environment: str) -> None:
    """Failures are counted, not raised."""
    words = ["make", "--no-print-directory", suite]
    subprocess.run(words, cwd=ROOT, env={**os.environ, **environment}, check=False)  # noqa: S603


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("json", type=Path, help="Where the counts are written.")
    options.add_argument("suites", nargs="*", help=f"Of {', '.join(SUITES)}; both by default.")
    options.add_argument("--cover", action="store_true", help="Measure only, without timing.")
    said = options.parse_args()
    sys.exit(main(said.json, said.suites or list(SUITES), cover_only=said.cover))
