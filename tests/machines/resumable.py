"""Everything that can be resumed, in one form: the next item, and a state as text."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Protocol

from quire.packed import PackedDataset
from quire.plan import OnlinePacker
from quire.stream import open_stream
from quire.stream.workers import WorkerBatches
from quire.vision import PackedVLDataset
from tests.corpus.corpora import jsonl, pack, texts
from tests.stream.inputs import ListSource, Numbers, config, key, shards_of, unique_documents
from tests.vision.inputs import KINDS, samples

END = "end"


class Resumable(Protocol):
    """A running one."""

    def next(self) -> object:
        """The next item, or END."""

    def state(self) -> str:
        """The state after the last item, serialized."""

    def restore(self, text: str) -> None:
        """Continue from a state."""


Make = Callable[[], Resumable]
"""A new one, at its start."""


@dataclass
class Streamed:
    """A stream, or the iterator of its batches in pieces."""

    source: Any

    def next(self) -> object:
        try:
            item = next(self.source)
        except StopIteration:
            return END
        return (key(item[0]), item[1]) if isinstance(item, tuple) else key(item)

    def state(self) -> str:
        return json.dumps(self.source.state_dict())

    def restore(self, text: str) -> None:
        self.source.load_state_dict(json.loads(text))


def streams(choose: Random) -> Make:
    """Streams of every packer, shuffled or not, ending or not, with one or several streams."""
    num_streams = choose.choice((1, 1, 2, 4))
    # Empty documents only where they leave no stream without a token, which is an error.
    least = 0 if num_streams == 1 else 1
    lengths = [1, *(choose.randrange(least, 15) for _ in range(choose.randrange(8, 40)))]
    documents = unique_documents(lengths)
    shards = shards_of(documents, choose.choice((1, 2, 3)))
    plain = config(
        seq_len=choose.choice((3, 6, 11)),
        batch_size=4,
        grad_accum=(pieces := choose.choice((1, 1, 2))),
        packing_mode=(mode := choose.choice(("sequential", "bin", "online"))),
        packing_buffer_docs=choose.randrange(1, 9),
        packing_max_docs_per_bin=None if mode == "sequential" else choose.choice((None, 2)),
        num_streams=num_streams,
        shuffle=choose.random() < 0.7,
        shuffle_buffer_size=choose.randrange(1, 12),
        repeat=choose.random() < 0.6,
        seed=choose.randrange(1000),
        state_update_interval=choose.randrange(1, 9),
        last_batch=choose.choice(("pad", "drop")),
    )

    def opened() -> Any:
        return open_stream(plain, source=ListSource(shards), tokenizer=Numbers())

    return lambda: Streamed(opened() if pieces == 1 else WorkerBatches(opened, pieces=pieces))


class Packs:
    """A packed vision-language dataset."""

    def __init__(self, dataset: PackedVLDataset) -> None:
        self._dataset = dataset
        self._packs: Iterator[list[Any]] | None = None

    def next(self) -> object:
        if self._packs is None:
            self._packs = iter(self._dataset)
        try:
            return [item["number"] for item in next(self._packs)]
        except StopIteration:
            return END

    def state(self) -> str:
        return json.dumps(self._dataset.state_dict())

    def restore(self, text: str) -> None:
        self._dataset.load_state_dict(json.loads(text))
        self._packs = None


def packs(choose: Random) -> Make:
    """Packs of known lengths, of samples by number, and of samples only in order."""
    items = samples([choose.randrange(1, 100) for _ in range(choose.randrange(20, 60))])
    kind = KINDS[choose.choice(list(KINDS))]
    options = {
        "packing_length": 80,
        "packing_buffer": choose.randrange(1, 13),
        "packing_min_fill_ratio": choose.choice((0.3, 0.65, 0.9, 1.0)),
        "packing_drop_last": choose.random() < 0.5,
    }
    world = choose.choice((1, 1, 2))
    rank = choose.randrange(world)
    return lambda: Packs(PackedVLDataset(kind(items), rank=rank, world_size=world, **options))


class Loaded:
    """A loader of a packed dataset, epoch after epoch."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._batches = iter(loader)

    def next(self) -> object:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._batches = iter(self._loader)
            batch = next(self._batches)
        return [(name, row[name].tobytes()) for row in batch for name in sorted(row)]

    def state(self) -> str:
        return json.dumps(self._loader.state_dict())

    def restore(self, text: str) -> None:
        self._loader.load_state_dict(json.loads(text))
        self._batches = iter(self._loader)


@cache
def packed_dataset() -> PackedDataset:
    """Rows on disk; the folder is removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="quire-")
    out = Path(folder.name) / "out"
    pack(jsonl(Path(folder.name) / "a.jsonl", texts(150)), out, partition_size=2000)
    dataset = PackedDataset(out)
    dataset.folder_of_test = folder  # type: ignore[attr-defined]
    return dataset


def loaders(choose: Random) -> Make:
    """One rank's batches, balanced or not."""
    world = choose.choice((1, 2, 4))
    options = {
        "rank": choose.randrange(world),
        "world_size": world,
        "seed": choose.randrange(1000),
        "shuffle": choose.random() < 0.8,
        "balance": choose.random() < 0.3,
    }
    size = choose.choice((8, 12, 24))
    return lambda: Loaded(packed_dataset().loader(size, **options))


class Rows:
    """An online packer and its documents; an item is the result of one call."""

    def __init__(self, packer: OnlinePacker[Any], lengths: list[int]) -> None:
        self._packer, self._lengths, self._done = packer, lengths, 0

    def next(self) -> object:
        if self._done > len(self._lengths):
            return END
        number, self._done = self._done, self._done + 1
        if number == len(self._lengths):
            return self._packer.flush()
        return self._packer.add(number if number % 2 else str(number), self._lengths[number])

    def state(self) -> str:
        return json.dumps({"done": self._done, "packer": self._packer.state_dict()})

    def restore(self, text: str) -> None:
        plain = json.loads(text)
        self._done = plain["done"]
        self._packer.load_state_dict(plain["packer"])


def packers(choose: Random) -> Make:
    """Online packers of every max_length, cap and alignment."""
    max_length = choose.choice((8, 31, 32, 128))
    options = {
        "buffer_size": choose.randrange(1, 14),
        "max_documents_per_row": choose.choice((None, 1, 3)),
        "align": choose.choice((1, 1, 4)),
    }
    most = max_length // options["align"] * options["align"]
    lengths = [choose.randrange(1, most + 1) for _ in range(choose.randrange(10, 120))]
    return lambda: Rows(OnlinePacker(max_length, **options), lengths)


KINDS_OF_RESUMABLES: dict[str, tuple[Callable[[Random], Make], int]] = {
    "stream": (streams, 20),
    "wrapper": (packs, 20),
    "loader": (loaders, 20),
    "online packer": (packers, 40),
}
"""How each is made at random, and its share of the points in percent."""
