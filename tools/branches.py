"""Counts the branches of the core that the quick tests take: `make branches`.

`python -m tools.branches docs/reliability/branches.json`. The core is what `make mutants` changes,
with the searches of the planner and the writer's other modules.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MODULES = (
    "boundaries/*",
    "corpus/commits.py",
    "corpus/index.py",
    "corpus/manifest.py",
    "corpus/output.py",
    "corpus/shards.py",
    "files.py",
    "labels.py",
    "ledger.py",
    "plan/*",
    "seals.py",
    "stream/state.py",
    "vision/state.py",
)
TESTS = (
    "tests/plan",
    "tests/contracts",
    *(f"tests/corpus/test_{n}.py" for n in ("commits", "index", "index_only", "manifest")),
    *(f"tests/corpus/test_{n}.py" for n in ("output", "pack_corpus", "shards")),
    *(f"tests/packed/test_{n}.py" for n in ("manifest", "planned_rows")),
    *(f"tests/stream/test_{n}.py" for n in ("golden_state", "state", "state_fields")),
    *(f"tests/vision/test_{n}.py" for n in ("refused_states", "state", "state_fields")),
    *(f"tests/test_boundaries{n}.py" for n in ("", "_errors")),
    *(f"tests/test_{n}.py" for n in ("eos_in_ledgers", "files", "labels", "ledger", "seals")),
)


def main(target: Path) -> int:
    """Write the counts of every module; 1 if a branch is not taken."""
    found = _measured()
    counts = {
        name.partition("src/quire/")[2]: {
            "statements": each["summary"]["num_statements"],
            "branches": each["summary"]["num_branches"],
            "statements not run": each["summary"]["missing_lines"],
            "branches not taken": each["summary"]["missing_branches"],
        }
        for name, each in sorted(found["files"].items())
    }
    first = next(iter(counts.values()))
    totals = {name: sum(each[name] for each in counts.values()) for name in first}
    told = {"command": "make branches", **totals, "modules": counts}
    target.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(totals)
    for name, each in sorted(found["files"].items()):
        for first, then in each["missing_branches"]:
            print(f"{name}: from line {first} never to {then}")
    return int(totals["branches not taken"] > 0)


def _measured() -> dict[str, Any]:
    python = [sys.executable, "-m"]
    include = ",".join(f"*/quire/{name}" for name in MODULES)
    with tempfile.TemporaryDirectory() as folder:
        known = {
            **os.environ,
            "COVERAGE_FILE": str(Path(folder) / "data"),
            "QUIRE_HYPOTHESIS": "mutants",  # few examples, always the same
        }
        run = ["coverage", "run", "--branch", f"--include={include}", "-m", "pytest", "-q", *TESTS]
        subprocess.run([*python, *run], env=known, check=True)  # noqa: S603
        report = Path(folder) / "report.json"
        subprocess.run(  # noqa: S603
            [*python, "coverage", "json", "-q", "-o", str(report)], env=known, check=True
        )
        measured: dict[str, Any] = json.loads(report.read_text())
        return measured


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("json", type=Path, help="Where the counts are written.")
    sys.exit(main(options.parse_args().json))
