"""Kill the installed command repeatedly; every file must equal that of an undisturbed run.

`python -m tests.faults.killing --kills 300` repeats it hundreds of times; the tests do few.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.corpus.corpora import hashes, jsonl, texts
from tests.faults.command_lines import command_line
from tests.faults.installed import QUIRE, environment
from tests.faults.layer import Fault

PARTITION = 400
FORMS = {"rows": (), "index": ("--index-only",)}
LAST_OPERATION = 100
"""A run of 20 partitions has some 400 operations; it is killed in one of its first 100."""


class KillLoop:
    """Chains of kills: each continues until a run completes, then its files are compared."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self._folder, self._choose = folder, random.Random(seed)
        records = [*texts(150), {"text": None}, *texts(40, seed=1)]
        self._corpus = jsonl(folder / "corpus.jsonl", records)
        self._expected = {form: self._undisturbed(form) for form in FORMS}
        self.kills: Counter[str] = Counter()
        """By kind: at a file operation of the output, or at a random moment."""
        self.chains: Counter[str] = Counter()
        """Correct outputs, by form of output."""

    def run(self, kills: int) -> Iterator[int]:
        """Kill at least this often; yields the count after every chain."""
        for number, form in enumerate(_for_ever(FORMS)):
            out = self._folder / f"out-{number}"
            packed, planned = self._expected[form]
            self._chain(out, packed, lambda o=out, f=form: self._pack(o, f))
            if form == "index":
                self._chain(out, planned, lambda o=out: self._replan(o))
            shutil.rmtree(out)
            self.chains[form] += 1
            yield self.kills.total()
            if self.kills.total() >= kills and len(self.chains) == len(FORMS):
                return

    def counts(self) -> dict[str, object]:
        """The counts so far; an output that differs raises an error and is not counted."""
        return {
            "engine": "local",
            "kills": dict(self.kills),
            "kills_in_all": self.kills.total(),
            "outputs": dict(self.chains),
            "byte_equal_in_all": self.chains.total(),
        }

    def _chain(self, out: Path, expected: dict[str, str], arguments) -> None:
        while self._is_killed(out, arguments()):
            found = hashes(out)
            stands = {name for name in found if name.endswith((".parquet", ".arrow"))}
            stands = {name for name in stands if not Path(name).name.startswith(".")}
            assert {n: found[n] for n in stands} == {n: expected[n] for n in stands}
        assert hashes(out) == expected, set(hashes(out).items()) ^ set(expected.items())

    def _is_killed(self, out: Path, arguments: list[str]) -> bool:
        """Run the command and kill it, unless it ends first."""
        kind = self._choose.choice(["operation", "moment"])
        if kind == "operation":
            done = self._run(arguments, self._dying(out, self._choose.randint(1, LAST_OPERATION)))
        else:
            done = self._killed_at_a_moment(out, arguments)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        self.kills[kind] += done.returncode != 0
        return done.returncode != 0

    def _killed_at_a_moment(
        self, out: Path, arguments: list[str]
    ) -> subprocess.CompletedProcess[str]:
        if arguments[0] == "pack":
            arguments = [*arguments, "--workers", str(self._choose.choice([1, 2]))]
        enough = _progress(out) + self._choose.randint(0, 4)
        process = subprocess.Popen(
            [QUIRE, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        while process.poll() is None and _progress(out) < enough:
            time.sleep(0.002)
        time.sleep(self._choose.uniform(0, 0.01))
        process.kill()
        error = process.communicate()[1]
        return subprocess.CompletedProcess(arguments, process.returncode, "", error)

    def _run(self, arguments: list[str], fault: Fault | None = None):
        return subprocess.run(
            [QUIRE, *arguments],
            env=environment(self._folder, fault),
            capture_output=True,
            text=True,
            check=False,
        )

    def _dying(self, out: Path, operation: int) -> Fault:
        """A kill at the given operation on the output."""
        journal = self._folder / "journal"
        shutil.rmtree(journal, ignore_errors=True)
        journal.mkdir()
        return Fault(disk=str(out), journal=str(journal), at=operation)

    def _undisturbed(self, form: str) -> tuple[dict[str, str], dict[str, str]]:
        out = self._folder / f"undisturbed-{form}"
        assert (done := self._run(self._pack(out, form))).returncode == 0, done.stderr
        packed = hashes(out)
        if form == "index":
            assert (done := self._run(self._replan(out))).returncode == 0, done.stderr
        assert sum(name.endswith(".parquet") for name in packed) >= 20, "20 partitions or more"
        return packed, hashes(out)

    def _pack(self, out: Path, form: str) -> list[str]:
        fixed = ["pack", str(self._corpus), "--out", str(out), "--tokenizer", "byte", "--resume"]
        sizes = ["--max-length", "16", "--partition-size", str(PARTITION)]
        return [*fixed, *sizes, "--max-bad-records", "1", *FORMS[form]]

    def _replan(self, out: Path) -> list[str]:
        return ["replan", str(out), "--max-length", "64", "--strategy", "wrapped"]


def _for_ever(forms) -> Iterator[str]:
    while True:
        yield from forms


def _progress(out: Path) -> int:
    return len(list((out / ".quire").glob("shard-*.json"))) + (out / "manifest.json").exists()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="Write the counts there.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        loop = KillLoop(Path(folder), arguments.seed)
        for kills in loop.run(arguments.kills):
            print(f"{kills} kills, {loop.chains.total()} outputs as undisturbed", flush=True)
            found = {"command": command_line("tests.faults.killing"), **loop.counts()}
            if arguments.json:  # after every output, so that an interrupted loop reports too
                arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
