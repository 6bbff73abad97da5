"""The installed `quire pack` with two workers, and a fault at an operation of any of them."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from quire.verify.output import verify_output
from tests.corpus.corpora import jsonl, texts
from tests.faults.installed import QUIRE, environment
from tests.faults.layer import DEATHS, ERRORS, KINDS, STRUCK, Fault
from tests.faults.power import entries, lose_power, operations
from tests.faults.trees import tree


class DisturbedCommand:
    """Runs of the command with one fault each, resumed and compared."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self._folder, self._choose = folder, random.Random(seed)
        self._corpus = jsonl(folder / "corpus.jsonl", [*texts(40), {"text": None}])
        self._fresh()
        done = self._run(self._fault(0, "kill"))
        assert done.returncode == 0, done.stderr
        self._after = tree(self._disk)
        self.num_operations = len(list(operations(self._journal)))
        self.tried: Counter[str] = Counter()
        """Byte-equal results, by kind."""
        self.failures: list[str] = []

    def run(self, count: int, kinds: Sequence[str] = KINDS) -> Iterator[str]:
        """Inject this many faults, spread over its operations, each of another kind."""
        for number in range(count):
            at = 1 + (2 * number + 1) * self.num_operations // (2 * count)
            kind = kinds[number % len(kinds)]
            try:
                self._try(at, kind)
            except AssertionError as error:
                self.failures.append(f"the command: {kind} at operation {at}: {error}")
                continue
            if (self._journal / STRUCK).exists():  # near the end there may be no write any more
                self.tried[kind] += 1
                yield f"{kind} at operation {at}"

    def _try(self, at: int, kind: str) -> None:
        self._fresh()
        before = entries(self._disk)
        fault = self._fault(at, kind)
        done = self._run(fault)
        self._require_ending(done, fault)
        if kind.startswith("unsynced") and done.returncode:
            lose_power(self._disk, before, self._journal, kind=kind)
        again = self._run(None)
        assert again.returncode == 0, (at, kind, again.stderr)
        assert tree(self._disk) == self._after, (
            at,
            kind,
            tree(self._disk).items() ^ self._after.items(),
        )
        assert verify_output(self._disk / "out").ok

    def _require_ending(self, done: subprocess.CompletedProcess[str], fault: Fault) -> None:
        """The death of one worker is repaired; so is an operation that two runs do differently."""
        expected = {0}
        if fault.kind in DEATHS:
            expected |= {-signal.SIGKILL}
        elif fault.kind in ERRORS:
            expected |= {2}
        assert done.returncode in expected, (fault, done.returncode, done.stderr)
        assert "Traceback" not in done.stderr, done.stderr

    def _fault(self, at: int, kind: str) -> Fault:
        whole = kind.startswith("unsynced") or self._choose.random() < 0.5
        disk, journal = str(self._disk), str(self._journal)
        return Fault(disk=disk, journal=journal, at=at, kind=kind, whole_group=whole)

    def _run(self, fault: Fault | None) -> subprocess.CompletedProcess[str]:
        out = ["--out", str(self._disk / "out"), "--tokenizer", "byte", "--resume"]
        sizes = ["--max-length", "16", "--partition-size", "400", "--max-bad-records", "1"]
        words = [str(QUIRE), "pack", str(self._corpus), *out, *sizes, "--workers", "2"]
        return subprocess.run(
            words,
            env=environment(self._folder, fault),
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )

    @property
    def _disk(self) -> Path:
        return self._folder / "disk"

    @property
    def _journal(self) -> Path:
        return self._folder / "journal"

    def _fresh(self) -> None:
        for path in (self._disk, self._journal):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
