"""One epoch of a stream with killed processes, changing ranks and a failing source."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np

from quire.files import whole_file
from quire.stream import Stream, load_state, open_stream, save_state
from tests.faults.forks import is_killed, start
from tests.stream.inputs import ListSource, Numbers, config, shards_of, unique_documents

SHARDS = 5


class _Noted(dict):
    """Planned failures, by position; each one that happened is a byte in a file."""

    def __init__(self, failures: dict[tuple[int, int], int], file: Path) -> None:
        super().__init__(failures)
        self._file = file

    def __setitem__(self, place: tuple[int, int], left: int) -> None:
        with self._file.open("ab") as file:
            file.write(b".")
        super().__setitem__(place, left)


class SoakedStream:
    """One round: batches are written to a log, which must equal that of an undisturbed run."""

    def __init__(self, folder: Path, choose: random.Random, counts: Counter[str]) -> None:
        self._folder, self._choose, self._counts = folder, choose, counts
        lengths = [choose.choice([0, 1, 3, 8, 20, 70, 200]) for _ in range(1500)]
        self._documents = unique_documents(lengths)
        self._num_streams = choose.choice([1, 2, 3])
        self._options = {
            "packing_mode": choose.choice(["sequential", "bin", "online"]),
            "packing_buffer_docs": choose.choice([1, 7, 64]),
            "shuffle_buffer_size": choose.choice([1, 10, 300]),
            "seed": choose.getrandbits(20),
            "num_streams": self._num_streams,
            "repeat": False,
        }

    def run(self) -> None:
        """Raise unless the batches are the same and every token occurs once."""
        expected = self._quiet()
        log = self._folder / "log.jsonl"
        for file in (log, self._folder / "failures"):
            file.touch()
        while not (self._folder / "end").exists():
            self._leg(log)
            self._compare(log, expected)
        assert {line[0] for line in _lines(log)} == set(range(len(expected)))
        self._counts["epochs of streams"] += 1
        self._counts["failures of sources"] += (self._folder / "failures").stat().st_size

    def _quiet(self) -> list[str]:
        """The batches of one rank without any disturbance, checked against the documents."""
        digests, tokens = [], []
        with self._open(0, 1) as stream:
            for batch in stream:
                digests.append(_digest([batch.to_dict()]))
                tokens.append(batch.input_ids[batch.attention_mask])
                # The last token of a window is a label alone; the first of a document is never one.
                tokens.append(_tails(batch))
        found = np.concatenate(tokens)
        found = np.sort(found[found >= 10])
        expected = np.concatenate([np.asarray(d, np.int64) for d in self._documents])
        assert np.array_equal(np.unique(found), np.sort(expected)), "a token is lost"
        self._counts["tokens streamed"] += len(expected)
        return digests

    def _open(self, rank: int, world_size: int, prefetch: int = 0, failures: int = 0) -> Stream:
        places = range(len(self._documents) // SHARDS)
        fail_at = {
            (self._choose.randrange(SHARDS), self._choose.choice(places)): self._choose.randint(
                1, 3
            )
            for _ in range(failures)
        }
        return open_stream(
            config(
                seq_len=64, batch_size=12, grad_accum=2, grain_prefetch=prefetch, **self._options
            ),
            rank=rank,
            world_size=world_size,
            source=ListSource(shards_of(self._documents, SHARDS), self._noted(fail_at)),
            tokenizer=Numbers(),
        )

    def _noted(self, failures: dict[tuple[int, int], int]) -> _Noted:
        return _Noted(failures, self._folder / "failures")

    def _leg(self, log: Path) -> None:
        """All ranks of a world, in a process that is killed unless it ends first."""
        world = self._choose.choice([1, 2, 3, 4, 6, 12])
        seed = self._choose.getrandbits(32)
        process = start(lambda: self._deliver(log, world, random.Random(seed)))
        self._counts["kills of streams"] += is_killed(process, self._choose.uniform(0, 1.0))
        self._counts["worlds of streams"] += 1

    def _deliver(self, log: Path, world: int, choose: random.Random) -> None:
        self._choose = choose
        prefetch = self._choose.choice([0, 2])
        streams = [self._open(rank, world, prefetch, failures=4) for rank in range(world)]
        step = self._restore(streams)
        with log.open("a", encoding="utf-8") as lines:
            while True:
                batches = [next(stream, None) for stream in streams]
                if batches[0] is None:
                    break
                lines.write(json.dumps([step, _digest([b.to_dict() for b in batches])]) + "\n")
                lines.flush()
                step += 1
                if self._choose.random() < 0.3:
                    self._save(streams, step)
        (self._folder / "end").touch()

    def _save(self, streams: list[Stream], step: int) -> None:
        folder = self._folder / f"step-{step}"
        folder.mkdir(exist_ok=True)
        for rank, stream in enumerate(streams):
            save_state(stream.get_state(), folder / f"{len(streams)}-{rank}.json")
        with whole_file(self._folder / "latest") as temporary:
            temporary.write_text(json.dumps([step, len(streams)]))

    def _restore(self, streams: list[Stream]) -> int:
        if not (self._folder / "latest").exists():
            return 0
        step, world = json.loads((self._folder / "latest").read_text())
        folder = self._folder / f"step-{step}"
        states = [load_state(folder / f"{world}-{rank}.json") for rank in range(world)]
        for stream in streams:
            stream.set_state(states if self._num_streams > 1 else states[0])
        return int(step)

    def _compare(self, log: Path, expected: list[str]) -> None:
        for step, digest in _lines(log):
            assert digest == expected[step], f"batch {step} is another one"


def _lines(log: Path) -> list[tuple[int, str]]:
    """The complete lines: a kill may leave half of one, which the next process extends."""
    found = []
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            step, digest = json.loads(line[line.rindex("[") :])
        except ValueError:
            continue
        found.append((step, digest))
    return found


def _digest(batches: list[dict[str, np.ndarray]]) -> str:
    """Of the global batch: the ranks' rows side by side."""
    digest = hashlib.sha256()
    for name in batches[0]:
        whole = np.concatenate([batch[name] for batch in batches], axis=1)
        digest.update(f"{name} {whole.dtype} {whole.shape}".encode() + whole.tobytes())
    return digest.hexdigest()


def _tails(batch) -> np.ndarray:
    """The last label of every row, if it is a target."""
    last = batch.labels[..., -1].reshape(-1)
    return last[last >= 0]
