"""``python -m tests.machines.elastic --pairs 500 --json counts.json``.

A pair is two sizes of a world, at one step of one run: the ranks of the first take the batches up
to that step and save, those of the second load and go on. It is exact if what all ranks get, put
side by side, is what a world of one gets, before the step and after it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from random import Random
from typing import Any, Protocol

import numpy as np

from quire.stream import open_stream
from tests.machines.counts import read_options, tell
from tests.machines.resumable import packed_dataset
from tests.stream.inputs import ListSource, Numbers, config, shards_of, unique_documents

STEPS_AFTER = 3


class World(Protocol):
    """All ranks of one size of the world."""

    def step(self) -> list[Any]:
        """The batches of all ranks, side by side."""

    def save(self) -> str:
        """The states of all ranks, serialized."""

    def load(self, text: str) -> None:
        """Continue from the states of a world of any size."""


class Streams:
    """The ranks of a stream."""

    sizes = (1, 2, 4, 8)

    def __init__(self, plain: dict[str, Any], shards: list[list[list[int]]], size: int) -> None:
        self._ranks = [
            open_stream(
                plain, source=ListSource(shards), tokenizer=Numbers(), rank=rank, world_size=size
            )
            for rank in range(size)
        ]

    def step(self) -> list[Any]:
        parts = [next(rank).to_dict() for rank in self._ranks]
        return [
            np.concatenate([part[name] for part in parts], axis=1).tolist() for name in parts[0]
        ]

    def save(self) -> str:
        return json.dumps([rank.get_state() for rank in self._ranks])

    def load(self, text: str) -> None:
        for rank in self._ranks:
            rank.set_state(json.loads(text))


class Loaders:
    """The ranks of a loader; with balance, the rows of a step are distributed differently."""

    sizes = (1, 2, 3, 4, 6, 8, 12, 24)

    def __init__(self, options: dict[str, Any], size: int) -> None:
        dataset = packed_dataset()
        self._balance = options["balance"]
        self._ranks = [
            dataset.loader(24, rank=rank, world_size=size, **options) for rank in range(size)
        ]
        self._batches = [iter(rank) for rank in self._ranks]

    def step(self) -> list[Any]:
        rows = []
        for number, rank in enumerate(self._ranks):
            try:
                batch = next(self._batches[number])
            except StopIteration:  # the next epoch
                self._batches[number] = iter(rank)
                batch = next(self._batches[number])
            rows += [row["input_ids"].tolist() for row in batch]
        return sorted(rows) if self._balance else rows

    def save(self) -> str:
        states = [rank.state_dict() for rank in self._ranks]
        assert all(state == states[0] for state in states)
        return json.dumps(states[-1])

    def load(self, text: str) -> None:
        for rank in self._ranks:
            rank.load_state_dict(json.loads(text))
        self._batches = [iter(rank) for rank in self._ranks]


def _make_stream(choose: Random) -> Any:
    # Each of the streams must have a token: one that repeats without any is an error.
    lengths = [choose.randrange(1, 15) for _ in range(choose.randrange(10, 40))]
    shards = shards_of(unique_documents(lengths), choose.choice((1, 3, 8)))
    plain = config(
        seq_len=choose.choice((3, 6)),
        batch_size=8,
        grad_accum=choose.choice((1, 2)),
        packing_mode=choose.choice(("sequential", "bin", "online")),
        packing_buffer_docs=choose.randrange(1, 9),
        num_streams=choose.choice((1, 2, 4, 8)),
        shuffle=choose.random() < 0.7,
        shuffle_buffer_size=choose.randrange(1, 9),
        seed=choose.randrange(1000),
    )
    return lambda size: Streams(plain, shards, size)


def _make_loader(choose: Random) -> Any:
    options = {"seed": choose.randrange(1000), "balance": choose.random() < 0.3}
    return lambda size: Loaders(options, size)


KINDS = {"stream": (_make_stream, Streams.sizes), "loader": (_make_loader, Loaders.sizes)}


def is_exact(make: Any, before: int, after: int, step: int) -> bool:
    """Whether the worlds, one after the other, get the batches of a single rank."""
    alone, first = make(1), make(before)
    for _ in range(step):
        if first.step() != alone.step():
            return False
    second = make(after)
    second.load(first.save())
    return all(second.step() == alone.step() for _ in range(STEPS_AFTER))


def count_pairs(kind: str, pairs: int, seed: int = 0) -> Counter[str]:
    """The number of pairs tried and of inexact ones; every pair of sizes in turn."""
    choose_make, sizes = KINDS[kind]
    every = [(before, after) for before in sizes for after in sizes if before != after]
    counts: Counter[str] = Counter(tried=0, inexact=0)
    for number in range(pairs):
        choose = Random(f"{kind} {seed} {number}")
        before, after = every[number % len(every)]
        make = choose_make(choose)
        counts["tried"] += 1
        counts["inexact"] += not is_exact(make, before, after, choose.randrange(0, 12))
    return counts


def main(arguments: list[str] | None = None) -> int:
    """1 if a pair was inexact."""
    said = read_options(__doc__, "pairs", 500, arguments)
    results = {kind: dict(count_pairs(kind, -(-said.pairs // 2), said.seed)) for kind in KINDS}
    for kind, counts in results.items():
        print(f"{kind:8} {counts['tried']:6,} pairs, {counts['inexact']} inexact")
    return tell("pairs", results, said)


if __name__ == "__main__":
    sys.exit(main())
