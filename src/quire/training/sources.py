"""Where the microbatches of `TrainingData` come from: packed rows, streams, or packs of samples.

A source makes the microbatches of an epoch from any of them on, and describes a position in JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from quire.errors import InvalidOption, InvalidState
from quire.options import require_integer
from quire.packed.loader import PackedLoader
from quire.packed.torch_datasets import row_tensors
from quire.seals import require_same
from quire.stream.torch_adapter import TorchBatches
from quire.stream.workers import latest_state
from quire.vision.dataset import PackedVLDataset

Collate = Callable[[list[Any]], Any]
State = dict[str, Any]


class Source(Protocol):
    """The microbatches of one rank, epoch after epoch."""

    kind: str
    """What it is, for states and messages."""
    rank: int
    world_size: int
    accumulation: int
    """Microbatches of an optimizer step."""

    def num_microbatches(self, epoch: int) -> int | None:
        """Microbatches of an epoch; None if that is not known before its end."""

    def open(self, epoch: int, done: int, num_workers: int) -> Iterator[Any]:
        """The microbatches of an epoch that follow the first ``done`` ones."""

    def state(self, epoch: int, done: int) -> State:
        """The position after this many microbatches of the pass that `open` began."""

    def restore(self, state: Any) -> tuple[int, int]:  # noqa: ANN401 - checked here
        """The epoch and the microbatches done, if the state is of the same data."""


def as_source(source: object, *, accumulation: int | None, collate: Collate | None) -> Source:
    """The source for what a user has: a loader, a stream, or packs."""
    if isinstance(source, PackedLoader):
        return PackedSource(source, accumulation or 1, collate)
    if isinstance(source, TorchBatches):
        return StreamSource(source, accumulation, collate)
    if isinstance(source, PackedVLDataset):
        return PackSource(source, accumulation or 1, collate)
    raise InvalidOption(
        f"the training data is a {type(source).__name__}, but must be PackedDataset.loader(...), "
        "quire.stream.TorchBatches(...) or a PackedVLDataset; a plain dataset of packed rows goes "
        "to the trainer as it is"
    )


@dataclass
class PackedSource:
    """The batches of a `PackedLoader`; the rows of a step are divided into microbatches."""

    loader: PackedLoader
    accumulation: int
    collate: Collate | None
    kind: str = "a loader of packed rows"
    _rows: tuple[tuple[int, int], list[int]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        options = self.loader.options
        self.rank, self.world_size = options.rank, options.world_size
        rows = options.global_batch // options.world_size
        require_integer("accumulation", self.accumulation, 1)
        if rows % self.accumulation:
            raise InvalidOption(
                f"a rank has {rows} rows in a step (global_batch={options.global_batch}, "
                f"world_size={options.world_size}), which accumulation={self.accumulation} does "
                "not divide; choose one that does"
            )

    def num_microbatches(self, epoch: int) -> int:
        """The same in every epoch."""
        return self.loader.steps_per_epoch * self.accumulation

    def microbatch(self, epoch: int, number: int) -> Any:  # noqa: ANN401 - whatever collate gives
        """One microbatch of an epoch, counted from 0."""
        step, piece = divmod(number, self.accumulation)
        if self._rows is None or self._rows[0] != (epoch, step):
            self._rows = (epoch, step), self.loader.rows(epoch, step).tolist()
        every = self._rows[1]
        size = len(every) // self.accumulation
        rows = self.loader.dataset.__getitems__(every[piece * size : (piece + 1) * size])
        collate = self.collate or self.loader.collate
        return [row_tensors(row) for row in rows] if collate is None else collate(rows)

    def open(self, epoch: int, done: int, num_workers: int) -> Iterator[Any]:
        """Workers make every n-th microbatch, in turn."""
        return _iterate(_Numbered(self, epoch, done), num_workers)

    def state(self, epoch: int, done: int) -> State:
        """The loader's state after the steps done, and the microbatches of an unfinished step."""
        steps, pieces = divmod(done, self.accumulation)
        place = self.loader.state_after(epoch, steps)
        return {"place": place, "pieces": pieces, "of": self.accumulation, "data": self._data()}

    def restore(self, state: Any) -> tuple[int, int]:  # noqa: ANN401
        """Another accumulation may continue after a whole step."""
        place, pieces, of = (_field(state, name) for name in ("place", "pieces", "of"))
        require_same(
            _field(state, "data"), self._data(), "continue with the data it was saved with"
        )
        if pieces and of != self.accumulation:
            raise InvalidState(
                f"the state follows microbatch {pieces} of {of} of a step, but steps have "
                f"{self.accumulation} here; use a state after a whole step, or accumulation={of}"
            )
        self.loader.load_state_dict(place)
        return self.loader.epoch, self.loader.step * self.accumulation + pieces

    def _data(self) -> State:
        """What the fingerprint of the dataset is made of, so that messages can name it."""
        dataset = self.loader.dataset
        tokenizer = dataset.manifest.get("tokenizer") or {}
        named = [str(tokenizer[name])[:16] for name in ("kind", "probes") if name in tokenizer]
        return {
            "tokenizer": " ".join(named),
            "max_length": dataset.max_length,
            "plan": dataset.plan,
        }


class _Numbered(IterableDataset[Any]):
    """Some microbatches of a packed source; each of n workers makes every n-th one."""

    def __init__(self, source: PackedSource, epoch: int, done: int) -> None:
        self._source, self._epoch, self._done = source, epoch, done

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
        total = self._source.num_microbatches(self._epoch)
        for number in range(self._done + first, total, every):
            yield self._source.microbatch(self._epoch, number)


class StreamSource:
    """The microbatches of a stream, whose state is its own."""

    kind = "a stream"

    def __init__(
        self, batches: TorchBatches, accumulation: int | None, collate: Collate | None
    ) -> None:
        self.batches = batches
        self.rank, self.world_size = batches.rank, batches.world_size
        self.accumulation = batches.options.grad_accum
        if accumulation not in (None, self.accumulation):
            raise InvalidOption(
                f"accumulation is {accumulation} but a batch of the stream has "
                f"{self.accumulation} microbatches; set {batches.options.name('grad_accum')}"
            )
        if collate is not None:
            raise InvalidOption("a stream makes whole microbatches; leave collate out")
        self._loader: Any = None
        self._running: Iterator[Any] | None = None
        self._start: Any = None

    def num_microbatches(self, epoch: int) -> None:
        """Not known."""
        return

    def open(self, epoch: int, done: int, num_workers: int) -> Iterator[Any]:
        """Continue the pass, or from a restored state; after its end, begin the next pass."""
        if self._running is None:
            if self._start is not None:
                self.batches.load_state_dict(self._start)
                self._start = None
            self._running = self._iterate(num_workers)
        return self

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - a microbatch
        if self._running is None:
            raise StopIteration
        try:
            return next(self._running)
        except StopIteration:
            self._running = self._loader = None
            raise

    def _iterate(self, num_workers: int) -> Iterator[Any]:
        if not num_workers:
            return iter(self.batches)
        from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

        self._loader = StatefulDataLoader(
            self.batches, batch_size=None, num_workers=num_workers, generator=_own_generator()
        )
        return iter(self._loader)

    def state(self, epoch: int, done: int) -> State:
        """The stream's state after the last microbatch; none at the start of a pass."""
        return {"epoch": epoch, "done": done, "stream": self._saved()}

    def _saved(self) -> Any:  # noqa: ANN401 - a stream's state
        if self._running is None:
            return self._start
        if self._loader is not None:
            return latest_state(self._loader.state_dict())
        return self.batches.state_dict()

    def restore(self, state: Any) -> tuple[int, int]:  # noqa: ANN401
        """Checked by the stream, before the first microbatch."""
        saved = _field(state, "stream")
        if saved is not None:
            self.batches.require_state(saved)
        self._start, self._loader, self._running = saved, None, None
        return int(_field(state, "epoch")), int(_field(state, "done"))


class PackSource:
    """The packs of a `PackedVLDataset`, each collated to a microbatch."""

    kind = "packs of samples"

    def __init__(self, packed: PackedVLDataset, accumulation: int, collate: Collate | None) -> None:
        self.packed, self._collate = packed, collate
        self.rank, self.world_size = packed.rank
        self.accumulation = accumulation

    def num_microbatches(self, epoch: int) -> int | None:
        """The packs of an epoch, if lengths are known."""
        try:
            self.packed.set_epoch(epoch)
            return len(self.packed)
        except TypeError:
            return None

    def open(self, epoch: int, done: int, num_workers: int) -> Iterator[Any]:
        """The packs after those done; their samples are not read."""
        self.packed.set_epoch(epoch)
        if done:
            self.packed.skip_packs(done)
        batches = _iterate(self.packed, num_workers, self._collate or _same)
        turn = done % num_workers if num_workers else 0
        return _in_turn(batches, turn, num_workers) if turn else batches

    def state(self, epoch: int, done: int) -> State:
        """A number of packs, and what determines them."""
        if self.num_microbatches(epoch) is None:
            raise InvalidState(
                "lengths are not known, so the packs done cannot be found again; give "
                f"{self.packed.lengths_needed} to save a state"
            )
        return {"epoch": epoch, "done": done, "terms": self._terms(epoch)}

    def restore(self, state: Any) -> tuple[int, int]:  # noqa: ANN401
        """The same packs are made from the same samples, options and ranks."""
        epoch, done = int(_field(state, "epoch")), int(_field(state, "done"))
        require_same(
            _field(state, "terms"),
            self._terms(epoch),
            "continue with the same dataset, options and ranks",
        )
        return epoch, done

    def _terms(self, epoch: int) -> State:
        self.packed.set_epoch(epoch)
        terms: State = self.packed.state_dict()["terms"]
        return {name: value for name, value in terms.items() if name != "lengths"}


def _same(batch: Any) -> Any:  # noqa: ANN401
    return batch


def _iterate(
    dataset: IterableDataset[Any], num_workers: int, collate: Collate | None = None
) -> Iterator[Any]:
    """The items, made by workers if there are any, without a draw from torch's global seed."""
    if not num_workers:
        return map(collate or _same, iter(dataset))
    loader = DataLoader(
        dataset,
        batch_size=None,
        num_workers=num_workers,
        collate_fn=collate or _same,
        generator=_own_generator(),
    )
    return iter(loader)


def _in_turn(batches: Iterator[Any], turn: int, num_workers: int) -> Iterator[Any]:
    """Batches in the order of their packs, where the first one is of the worker with this number.

    Pack n belongs to worker n % num_workers, but a `DataLoader` always asks worker 0 first.

    >>> list(_in_turn(iter([6, 5, 8, 7, 9]), turn=1, num_workers=2))
    [5, 6, 7, 8, 9]
    """
    while group := list(islice(batches, num_workers)):
        later = max(0, turn + len(group) - num_workers)
        yield from group[later:] + group[:later]


def _own_generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _field(state: Any, name: str) -> Any:  # noqa: ANN401
    if not isinstance(state, Mapping) or name not in state:
        raise InvalidState(
            f"the state has no field {name!r}; use a state exactly as state_dict() returned it"
        )
    return state[name]
