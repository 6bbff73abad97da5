"""`python -m tools.reliability` writes docs/reliability.md: faults, their tests, and counts.

The tests are found by the numbers that they carry; the counts are those in docs/reliability/*.json,
each of which a command wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tools.fault_lines import CHAPTERS, Chapter
from tools.fault_tests import find_tests
from tools.reliability_counts import counts_of

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
COUNTS = ROOT / "docs" / "reliability"
DEFECTS = COUNTS / "defects.json"
"""What users, an auditor and an attacker found: each with its cause and its test."""
SHOWN = 2
"""Tests that are named for a fault; the others are counted."""

HEAD = """\
# Reliability

What can go wrong, what quire does then, and the tests that hold it. This page is written by
`python -m tools.reliability`, from the tests themselves and from the counts that commands left in
`docs/reliability/`.
"""
DISK = """\
Beneath the file operations of packing, resuming, planning again, opening rows and saving a state
lies a layer that numbers every one of them: opening to write, writing, syncing, renaming, removing,
making and listing folders. At each, in a run of its own, something happens: the process is killed;
half a write is done and the process is killed; the power fails and whatever was not synced is gone,
with the names of files, without them, or with all but the last; the disk is full; the disk fails; a
write takes half of its bytes. Then the same is run again, and every file, hidden ones too, must be
that of an undisturbed run. A test asks the kernel (strace) whether the layer saw every operation,
and controls take one protection away at a time and must be found.
"""

MUTANTS = """\
mutmut changes one thing at a time in the planner, boundaries, labels, ledger, saved states and
commits; the quick tests must fail. The changes that no test noticed stand in
[mutants.json](reliability/mutants.json), each with the reason why nothing can notice it
(`tools/explained/*.toml`) or with none, if nobody found one.
"""


def page() -> str:
    """The page's text."""
    tests = find_tests(ROOT / "tests")
    parts = [HEAD, "## Counts\n", *counts_of(COUNTS), "## Every file operation\n", DISK]
    parts += ["## What no test notices\n", MUTANTS]
    for chapter in CHAPTERS:
        parts.append(f"## {chapter.title}\n")
        parts.append(
            "\n".join(["| | what goes wrong | what happens | test |", "|---|---|---|---|"])
        )
        parts[-1] += "".join(_rows(chapter, tests)) + "\n"
    parts += ["## Defects that were found and closed\n", _defects()]
    return "\n".join(parts)


def _rows(chapter: Chapter, tests: dict[int, list[str]]) -> Iterator[str]:
    for number, line in enumerate(chapter.lines, start=chapter.first):
        found = tests.get(number, [])
        shown = "<br>".join(_name(test) for test in found[:SHOWN]) or "none"
        more = f"<br>and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        yield f"\n| {number} | {line.fault} | {line.behaviour} | {shown}{more} |"


def _defects() -> str:
    found = json.loads(DEFECTS.read_text(encoding="utf-8"))
    rows = [f"| {each['defect']} | {each['cause']} | {_name(each['test'])} |" for each in found]
    return "\n".join(["| defect | cause | test |", "|---|---|---|", *rows]) + "\n"


def _name(test: str) -> str:
    path, _, name = test.partition("::")
    return f"`{path.removeprefix('tests/')}` {name.removeprefix('test_').replace('_', ' ')}"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
