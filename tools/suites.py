"""`make suites` writes what the two suites cost and cover: docs/reliability/suites.json.

`python -m tools.suites docs/reliability/suites.json [test] [test-all]`. Each is a target of make
and runs twice: once to be timed, and once with every process measured, as measuring takes time
too. What the file says of the other suite stays.
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
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
SUITES = ("test", "test-all")
QUICK, WHOLE = SUITES
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


def main(target: Path, suites: list[str]) -> int:
    """Write the counts after each suite; 1 if a test failed."""
    told = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    known: dict[str, Suite] = {**told.get("suites", {})}
    taken: dict[str, Branches] = {}
    for suite in suites:
        known[suite] = _timed(suite)
        known[suite]["branches taken"], known[suite]["branches"], taken[suite] = _measured(suite)
        if set(SUITES) <= set(taken):
            share = shared(taken[QUICK], taken[WHOLE])
            known[QUICK]["percent of the branches that the whole takes"] = share
        told = {"command": "make suites", "cores": os.cpu_count(), "suites": known}
        target.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        print(suite, known[suite])
    return int(any(known[suite]["failed"] for suite in suites))


def shared(part: Branches, whole: Branches) -> float:
    """How much of the whole is in the part, in percent.

    >>> shared({"a.py": [[1, 2]], "b.py": [[7, 8]]}, {"a.py": [[1, 2], [1, 3]]})
    50.0
    """
    all_taken = {(file, *branch) for file, branches in whole.items() for branch in branches}
    also = {(file, *branch) for file, branches in part.items() for branch in branches}
    return round(100 * len(all_taken & also) / len(all_taken), 2)


def _timed(suite: str) -> Suite:
    """Run it alone; tests, and the seconds of all its processes."""
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


def _measured(suite: str) -> tuple[int, int, Branches]:
    """Run it with every process measured; branches taken, branches, and which were taken."""
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
    return found["totals"]["covered_branches"], found["totals"]["num_branches"], taken


def _make(suite: str, **environment: str) -> None:
    """Failures are counted, not raised."""
    words = ["make", "--no-print-directory", suite]
    subprocess.run(words, cwd=ROOT, env={**os.environ, **environment}, check=False)  # noqa: S603


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("json", type=Path, help="Where the counts are written.")
    options.add_argument("suites", nargs="*", help=f"Of {', '.join(SUITES)}; both by default.")
    said = options.parse_args()
    sys.exit(main(said.json, said.suites or list(SUITES)))
