"""`make nightly` tries every property 10,000 times, and writes how often each was tried.

`python -m tools.properties --json docs/reliability/properties.json [--workers 2] [files]`. What the
file says of other test files stays, and it is written after each: a night may have several parts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
COUNTS = "QUIRE_EXAMPLES"
"""Names the file into which pytest writes what was tried, when this module is its plugin."""

Property = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    said = parser.parse_args(arguments)
    tried = json.loads(said.json.read_text())["properties"] if said.json.exists() else {}
    files = [file.as_posix() for file in said.files] or list(_files_with_properties())
    with ThreadPoolExecutor(said.workers) as pool:
        for file, found in zip(files, pool.map(_try, files), strict=True):
            tried = {n: each for n, each in tried.items() if not n.startswith(f"{file}::")} | found
            said.json.write_text(json.dumps(_told(tried), indent=1) + "\n")
            print(file, {name.partition("::")[2]: each["examples"] for name, each in found.items()})
    return int(any(each["failures"] for each in tried.values()))


def _told(tried: dict[str, Property]) -> dict[str, Any]:
    """What is written: the sums, then every property."""
    counts = [each["examples"] for each in tried.values() if not each["all there are"]]
    return {
        "command": "make nightly",
        "properties tried": len(tried),
        "properties with few inputs, all tried": len(tried) - len(counts),
        "examples in all": sum(each["examples"] for each in tried.values()),
        "fewest examples of a property": min(counts, default=0),
        "failures": sum(each["failures"] for each in tried.values()),
        "properties": dict(sorted(tried.items())),
    }


def _files_with_properties() -> Iterator[str]:
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if re.search(r"^\s*@given\b|= .*Machine\.TestCase$", text, re.MULTILINE):
            yield file.relative_to(ROOT).as_posix()


def _try(file: str) -> dict[str, Property]:
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        words = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", "-p", "tools.properties"]
        known = {**os.environ, "QUIRE_HYPOTHESIS": "nightly", COUNTS: str(counts)}
        done = subprocess.run(  # noqa: S603
            [*words, file], env=known, cwd=ROOT, capture_output=True, text=True, check=False
        )
        if not counts.exists():
            raise SystemExit(f"{file}: pytest was cut off ({done.returncode})\n{done.stdout}")
        if done.returncode not in (0, 5):  # 5: no property there, only the words of one
            print(done.stdout)
        found: dict[str, Property] = json.loads(counts.read_text())
        return found


def examples_of(statistics: str) -> int:
    """How many examples a property held for, from the statistics of hypothesis.

    >>> examples_of("- 100 passing, 0 failing, and 14 invalid test cases ... - 1 passing, 0")
    101
    """
    return sum(map(int, re.findall(r"(\d+) passing", statistics)))


_tried: dict[str, Property] = {}


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """As pytest's plugin: add what was tried to the property's count, over all its parameters."""
    statistics = getattr(item, "hypothesis_statistics", None)
    if COUNTS in os.environ and statistics is not None:
        name = item.nodeid.partition("[")[0]
        each = _tried.setdefault(name, {"examples": 0, "failures": 0, "all there are": True})
        each["examples"] += examples_of(statistics)
        each["failures"] += len(re.findall(r"\b[1-9]\d* failing", statistics))
        each["all there are"] &= "nothing left to do" in statistics


def pytest_sessionfinish() -> None:
    """As pytest's plugin: write what was tried."""
    if COUNTS in os.environ:
        Path(os.environ[COUNTS]).write_text(json.dumps(_tried), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
