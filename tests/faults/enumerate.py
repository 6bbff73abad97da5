"""Every fault at every file operation of every task; then the task runs again and is compared.

`python -m tests.faults.enumerate --json FILE` tries all of them; the tests try every n-th. Each
point is a process of its own, forked from this one so that it starts at once; some runs are those
of the installed command.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from tests.faults.command_lines import command_line
from tests.faults.points import Counts, Enumeration
from tests.faults.real_command import DisturbedCommand
from tests.faults.works import all_works


def count_all(folder: Path, only: str = "", every: int = 1) -> Counts:
    """The counts over all tasks, or over those whose name contains a word."""
    counts = Counts()
    for number, work in enumerate(all_works(folder)):
        if only in work.name:
            for _ in Enumeration(work, folder / str(number), counts).run(every, start=number):
                pass
    return counts


def count_commands(folder: Path, count: int) -> dict[str, object]:
    """How often the installed command had a fault, and how often the result was byte-equal."""
    folder.mkdir()
    command = DisturbedCommand(folder)
    for _ in command.run(count):
        pass
    return {
        "operations": command.num_operations,
        "faults_tried_in_all": command.tried.total() + len(command.failures),
        "byte_equal": dict(command.tried),
        "byte_equal_in_all": command.tried.total(),
        "failures": command.failures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="Write the counts there.")
    parser.add_argument("--every", type=int, default=1, help="Try every n-th point.")
    parser.add_argument("--only", default="", help="A word in the names of works.")
    parser.add_argument("--commands", type=int, default=60, help="Runs of the installed command.")
    arguments = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        counts = count_all(Path(folder), arguments.only, arguments.every)
        found: dict[str, object] = {"command": command_line("tests.faults.enumerate")}
        found |= counts.to_dict()
        failed = bool(counts.failures)
        if arguments.commands:
            runs = count_commands(Path(folder) / "real", arguments.commands)
            found["installed_command"], failed = runs, failed or bool(runs["failures"])
    text = json.dumps(found, indent=1) + "\n"
    if arguments.json:
        arguments.json.write_text(text)
    print(text, end="")
    sys.exit(failed)


if __name__ == "__main__":
    main()
