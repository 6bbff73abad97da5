"""`TrainingData`: one rank's microbatches, with the exact position of what was delivered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Never

import torch
import torch.distributed as dist

from quire.errors import InvalidOption, InvalidState
from quire.options import require_integer
from quire.packed.loader import PackedLoader
from quire.seals import Seal
from quire.stream.torch_adapter import TorchBatches
from quire.training.sharding import require_whole_share
from quire.training.sources import Collate, State, as_source
from quire.vision.dataset import PackedVLDataset

_SEAL = Seal(format="quire.training.data", owner="training data", first=3)


class TrainingData:
    """One rank's microbatches of packed rows, a stream or packs, for any training loop.

    ``source`` is `PackedDataset.loader(...)`, `quire.stream.TorchBatches(...)` or a
    `PackedVLDataset`, opened with this process's ``rank`` and ``world_size``. A step has
    ``accumulation`` microbatches (a stream says itself how many). ``collate`` makes a batch from
    rows or from a pack.

    Iterating delivers the rest of an epoch; iterating again, the next one. `state_dict` is JSON and
    describes the last microbatch that was delivered, whatever workers made ahead. Another world
    size may continue from it, if the source allows it.

    It belongs to this rank already: neither wrap it in a sampler nor in a dataset shard.
    accelerate's ``prepare`` leaves it as it is, and ``register_for_checkpointing`` saves its state;
    Lightning takes it as ``train_dataloader`` and saves its state with the checkpoint.
    ``num_steps`` is an epoch of a stream, whose end is not known, for frameworks that need a
    length. With ``gather_states`` a state holds those of all ranks, and all of them have to ask
    for it: only a stream of several ``num_streams`` needs that.
    """

    def __init__(
        self,
        source: PackedLoader | TorchBatches | PackedVLDataset,
        *,
        accumulation: int | None = None,
        collate: Collate | None = None,
        num_workers: int = 0,
        num_steps: int | None = None,
        gather_states: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        self.source = as_source(source, accumulation=accumulation, collate=collate)
        self.num_workers = require_integer("num_workers", num_workers, 0)
        self._num_steps = num_steps
        self._gather_states, self._device = gather_states, device
        self._epoch, self._done = 0, 0

    def __repr__(self) -> str:
        rank, total = f"rank {self.source.rank} of {self.source.world_size}", self.num_microbatches
        of = "" if total is None else f" of {total}"
        return (
            f"TrainingData({self.source.kind}, {rank}, epoch {self.epoch}, {self._done}{of} done)"
        )

    @property
    def epoch(self) -> int:
        """The epoch of the next microbatch."""
        return self._epoch

    @property
    def num_done(self) -> int:
        """Microbatches of this epoch that were delivered."""
        return self._done

    @property
    def num_microbatches(self) -> int | None:
        """Microbatches of an epoch; None for a stream without ``num_steps``."""
        if self._num_steps is not None:
            return self._num_steps * self.source.accumulation
        return self.source.num_microbatches(self._epoch)

    def __len__(self) -> int:
        """The microbatches of the whole epoch, however many of them were delivered."""
        if self.num_microbatches is None:
            raise TypeError(f"the length of {self.source.kind} is not known; give num_steps")
        return self.num_microbatches

    def __getitem__(self, number: object) -> Never:
        """Refuse what samplers do: the microbatches come in their own order."""
        raise InvalidOption(
            "TrainingData is not a dataset: a DataLoader or a sampler over it "
            "would shuffle or divide microbatches again; iterate over it, or hand it to the "
            "framework as it is"
        )

    def __iter__(self) -> Iterator[Any]:
        require_whole_share(self.source.rank, self.source.world_size, self.source.kind)
        epoch, total = self._epoch, self.num_microbatches
        batches = self.source.open(epoch, self._done, self.num_workers)
        while self._epoch == epoch:
            try:
                batch = next(batches)
            except StopIteration:
                self._epoch, self._done = epoch + 1, 0
                return
            # Before the yield, so that a state describes what was delivered.
            self._done += 1
            if self._done == total:
                self._epoch, self._done = epoch + 1, 0
            yield batch if self._device is None else moved(batch, self._device)

    def state_dict(self) -> State:
        """The position after the last microbatch that was delivered, in JSON."""
        state = self._own_state()
        world = self.source.world_size
        if not self._gather_states or world == 1:
            return state
        states: list[State | None] = [None] * world
        dist.all_gather_object(states, state)
        return _SEAL.sealed({"kind": self.source.kind, "ranks": states})

    def load_state_dict(self, state: State | Sequence[State]) -> None:
        """Continue after the microbatch of a state: one rank's, or a list of all ranks' states.

        Raises InvalidState if data, plan, tokenizer or options are not those of the state.
        """
        states = [_opened(one, self.source.kind) for one in _each(state)]
        if not states:
            raise InvalidState("the list has no state; pass at least one rank's")
        self._epoch, self._done = self.source.restore(_merged(states))

    def _own_state(self) -> State:
        body = self.source.state(self._epoch, self._done)
        return _SEAL.sealed({"kind": self.source.kind, "position": body})


def moved(batch: Any, device: torch.device | str) -> Any:  # noqa: ANN401
    """The batch with everything that can be moved on a device."""
    if isinstance(batch, Mapping):
        return {name: moved(value, device) for name, value in batch.items()}
    return batch.to(device) if hasattr(batch, "to") else batch


def _each(state: object) -> list[Any]:
    if isinstance(state, Mapping) and "ranks" in state:
        state = _SEAL.opened(state)["ranks"]
    return list(state) if isinstance(state, list | tuple) else [state]


def _opened(state: object, kind: str) -> State:
    fields = _SEAL.opened(state)
    if fields.get("kind") != kind:
        raise InvalidState(
            f"the state is of {fields.get('kind')} but this is {kind}; continue with the data that "
            "it was saved with"
        )
    position = fields.get("position")
    if not isinstance(position, dict):
        raise InvalidState("the state has no position; use it exactly as state_dict() returned it")
    return position


def _merged(states: list[State]) -> State:
    """One position: the ranks differ at most in the streams that they read."""
    streams = [one["stream"] for one in states if one.get("stream") is not None]
    return states[0] if len(states) == 1 or not streams else {**states[0], "stream": streams}
