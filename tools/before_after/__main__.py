"""Time the lines of `make bench` on two checkouts of quire, in alternation: is anything slower?

    git worktree add ../old a0b0e6e
    python -m tools.before_after ../old                        # everything, half an hour
    python -m tools.before_after ../old --only stream --rounds 5 --json stream.json
    python -m tools.before_after --table stream.json online.json

Every section (`tools.before_after.cases`) runs in a new process with the sources of one checkout
and reports the seconds of the fastest repeat of each case. The table has the least of all rounds
and their ratio. Seconds are CPU time, that of child processes included; those of Ray are wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
SECTIONS = (
    "planner",
    "online",
    "tight",
    "vectors",
    "balance",
    "blocks",
    "pack_dataset",
    "corpus",
    "ray_engine",
    "loader",
    "collate",
    "vision",
    "stream",
)
Seconds = dict[str, float]


def seconds(section: str, tree: Path, only: str) -> Seconds:
    """Seconds of every case of a section with the sources of a checkout."""
    paths = os.pathsep.join([str(tree / "src"), str(HERE)])
    words = [sys.executable, "-W", "ignore", "-m", "tools.before_after.cases", section, only]
    done = subprocess.run(  # noqa: S603 - our own module
        words, env={**os.environ, "PYTHONPATH": paths, "QUIRE_TREE": str(tree)},
        cwd=HERE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{section} in {tree}: {done.stderr[-2000:]}")
    found: Seconds = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(section: str, before: Path, rounds: int, only: str) -> dict[str, list[float]]:
    """Seconds before and now, by case."""
    trees = (before, HERE)
    runs = [[seconds(section, tree, only) for tree in trees] for _ in range(rounds)]
    return {
        f"{section}: {case}": [min(run[side][case] for run in runs) for side in (0, 1)]
        for case in runs[0][0]
    }


def table(found: dict[str, list[float]]) -> str:
    """The lines as Markdown."""
    lines = ["| line | before, ms | after, ms | after / before |", "|---|--:|--:|--:|"]
    for case, (before, after) in found.items():
        lines.append(
            f"| {case} | {1000 * before:,.2f} | {1000 * after:,.2f} | {after / before:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", type=Path, nargs="?", help="another checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="a section, or SECTION:WORDS of its cases")
    parser.add_argument("--json", type=Path, help="also write the seconds there")
    parser.add_argument("--table", type=Path, nargs="+", help="only print what --json wrote")
    given = parser.parse_args()
    found: dict[str, list[float]] = {}
    for file in given.table or ():
        found |= json.loads(file.read_text())
    named, _, words = given.only.partition(":")
    for section in () if given.table else SECTIONS:
        if named in ("", section):
            found |= compare(section, given.before.resolve(), given.rounds, words)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    print(table(found))


if __name__ == "__main__":
    main()
