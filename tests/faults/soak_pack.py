"""One corpus, packed with repeated kills and read back by a changing number of ranks."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

from quire.packed import PackedDataset
from quire.verify.output import verify_output
from tests.corpus.corpora import contents, jsonl, pack, texts
from tests.faults.forks import is_killed, start
from tests.faults.installed import QUIRE

LENGTH, PARTITION, EOS, OFFSET = 64, 20_000, 2, 3
GLOBAL_BATCH = 12


class SoakedPack:
    """One round."""

    def __init__(self, folder: Path, choose: random.Random, counts: Counter[str]) -> None:
        self._choose, self._counts = choose, counts
        records: list = [text * 3 for text in texts(2000, seed=choose.getrandbits(32))]
        for place in choose.sample(range(len(records)), 5):
            records[place] = {"text": None}
        self._records = records
        self._corpus, self._out = jsonl(folder / "corpus.jsonl", records), folder / "out"

    def run(self) -> None:
        """Raise unless everything that was written can be read back exactly once."""
        for _ in range(self._choose.randint(2, 6)):
            if self._killed():
                self._counts["kills of pack"] += 1
        pack(self._corpus, self._out, **self._terms())
        self._read_back()
        self._counts["outputs whole"] += 1
        self._read_in_worlds()

    def _terms(self) -> dict[str, object]:
        sizes = {"max_length": LENGTH, "partition_size": PARTITION}
        return {**sizes, "max_bad_records": 5, "resume": True}

    def _killed(self) -> bool:
        """Start it, in a fork or as the installed command, and kill it unless it ends first."""
        if QUIRE.exists() and self._choose.random() < 0.3:
            return is_killed(start(self._become_the_command), self._choose.uniform(0, 3.0))
        process = start(lambda: pack(self._corpus, self._out, **self._terms()))
        return is_killed(process, self._choose.uniform(0, 0.5))

    def _become_the_command(self) -> None:
        words = [str(QUIRE), "pack", str(self._corpus), "--out", str(self._out), "--resume"]
        words += ["--tokenizer", "byte", "--max-length", str(LENGTH), "--workers", "2"]
        words += ["--partition-size", str(PARTITION), "--max-bad-records", "5"]
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(words[0], words)  # noqa: S606 - no shell is wanted

    def _read_back(self) -> None:
        """Using only pyarrow: every byte of every text, in order, and its end."""
        found = contents(self._out)
        expected = {
            number: [byte + OFFSET for byte in text.encode()] + [EOS]
            for number, text in enumerate(self._records)
            if isinstance(text, str) and text
        }
        assert found == expected, "other tokens than the corpus has"
        assert verify_output(self._out).ok
        self._counts["tokens packed"] += sum(map(len, expected.values()))

    def _read_in_worlds(self) -> None:
        """An epoch with changing ranks; every row comes once, except those that fill no step."""
        dataset = PackedDataset(self._out)
        state, seen = None, Counter()
        steps = len(dataset) // GLOBAL_BATCH
        while steps:
            world, leg = self._choose.choice([1, 2, 3, 4, 6, 12]), self._choose.randint(1, steps)
            loaders = [
                dataset.loader(GLOBAL_BATCH, rank=rank, world_size=world) for rank in range(world)
            ]
            for loader in loaders:
                if state is not None:
                    loader.load_state_dict(json.loads(state))
                for step in range(leg):
                    seen.update(loader.rows(loader.epoch, loader.step + step).tolist())
            state = json.dumps(loaders[0].state_after(0, loaders[0].step + leg))
            steps -= leg
            self._counts["worlds of loaders"] += 1
        assert set(seen.values()) == {1}, "a row came twice"
        assert len(seen) == len(dataset) // GLOBAL_BATCH * GLOBAL_BATCH
        self._counts["rows loaded"] += len(seen)
