"""Batches of packed rows in an order that does not depend on world size or worker count."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, InvalidState
from quire.options import Count, Positive, Seed, require_integer, validate
from quire.plan import balance
from quire.plan.build import permutation
from quire.seals import Seal
from quire.worker_memory import SharedNumbers

if TYPE_CHECKING:
    from quire.packed.dataset import PackedDataset, Row
    from quire.packed.torch_datasets import TorchBatches

Ints = npt.NDArray[np.int64]
_SEAL = Seal(
    format="quire.loader",
    owner="a loader of packed rows",
    migrations={1: lambda body: {"sharded": False} | body},  # version 1 had no such option
    first=2,
)
_PER_PAIR = 2e-5
"""The cost of a pair of attending tokens relative to a token, as in `quire.attention_costs`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderOptions:
    """The order of rows, and which of them belong to this rank."""

    global_batch: Positive
    """Rows per step, over all ranks."""
    rank: Count = 0
    world_size: Positive = 1
    seed: Seed = 0
    shuffle: bool = True
    """Use a new order in every epoch."""
    balance: bool = False
    """Distribute the rows of a step over ranks by attention cost."""
    sharded: bool = False
    """Give every index of a batch, and so every rank, its own part of the dataset: a rank reads
    only the shards of its part. The sequence is still the same for every world size."""

    def __post_init__(self) -> None:
        validate(self)
        if self.sharded and self.balance:
            raise InvalidOption(
                "balance moves rows between ranks, but sharded gives every rank its own part; "
                "leave one of them out"
            )
        if self.rank >= self.world_size:
            raise InvalidOption(f"rank is {self.rank} but world_size is {self.world_size}")
        if self.global_batch % self.world_size:
            raise InvalidOption(
                f"world_size={self.world_size} does not divide global_batch={self.global_batch}; "
                "choose one that does, so that all ranks get equally many rows"
            )


class PackedLoader:
    """This rank's batches, from the current position to the end of the epoch.

    Iterating again continues with the next epoch. Rows that do not fill a last step are left out of
    an epoch (``num_left_over``); every rank has the same number of steps.
    """

    def __init__(
        self,
        dataset: PackedDataset,
        options: LoaderOptions,
        *,
        epoch: int = 0,
        collate: Callable[[list[Row]], Any] | None = None,
    ) -> None:
        self.dataset, self.options = dataset, options
        self._position = (require_integer("epoch", epoch, 0), 0)
        self._shared_position: SharedNumbers | None = None
        self.collate = collate
        self._cached: tuple[int, Ints] | None = None
        missing = {"input_ids", "document_starts"} - set(dataset.columns)
        if options.balance and missing:
            raise InvalidOption(f"balance needs the columns {', '.join(sorted(missing))}")
        if not self.steps_per_epoch:
            raise InvalidOption(
                f"global_batch={options.global_batch} is more than the {len(dataset)} rows of "
                f"{dataset.path}; lower it"
            )

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._position[0]

    @property
    def step(self) -> int:
        """The step of the next batch, in its epoch."""
        return self._position[1]

    def _move(self, epoch: int, step: int) -> None:
        self._position = (epoch, step)
        if self._shared_position is not None:
            self._shared_position.write(epoch, step)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return len(self.dataset) // self.options.global_batch

    @property
    def num_left_over(self) -> int:
        """Rows that an epoch leaves out because they do not fill a step."""
        return len(self.dataset) % self.options.global_batch

    def __len__(self) -> int:
        return self.steps_per_epoch - self.step

    def __repr__(self) -> str:
        options = self.options
        return (
            f"PackedLoader({self.dataset!r}, global_batch={options.global_batch}, "
            f"rank {options.rank} of {options.world_size}, epoch {self.epoch}, "
            f"step {self.step} of {self.steps_per_epoch})"
        )

    def __iter__(self) -> Iterator[Any]:
        epoch = self.epoch
        while self.epoch == epoch:
            step = self.step
            batch = self.batch(epoch, step)
            # Before the yield, so that the state describes what was delivered.
            is_last = step + 1 == self.steps_per_epoch
            self._move(*((epoch + 1, 0) if is_last else (epoch, step + 1)))
            yield batch

    def batch(self, epoch: int, step: int) -> Any:  # noqa: ANN401 - whatever collate gives
        """This rank's rows of one step, collated; the first step of an epoch is 0."""
        rows = self.dataset.__getitems__(self.rows(epoch, step).tolist())
        return rows if self.collate is None else self.collate(rows)

    def rows(self, epoch: int, step: int) -> Ints:
        """The row numbers of this rank in one step."""
        epoch, step = require_integer("epoch", epoch, 0), require_integer("step", step, 0)
        if step >= self.steps_per_epoch:
            count = self.steps_per_epoch
            raise InvalidOption(f"step is {step} but an epoch has {count}: use 0 to {count - 1}")
        size, world = self.options.global_batch, self.options.world_size
        every = self._order(epoch)[step * size : (step + 1) * size]
        if self.options.balance and world > 1:
            dealt = balance(self._costs(every), world, size // world).rows
            every = every[dealt[0].reshape(-1)]
        mine: Ints = every.reshape(world, -1)[self.options.rank]
        return mine

    def _order(self, epoch: int) -> Ints:
        if self._cached is None or self._cached[0] != epoch:
            self._cached = (epoch, self._epoch_order(epoch))
        return self._cached[1]

    def _epoch_order(self, epoch: int) -> Ints:
        if self.options.sharded:
            return self._sharded_order(epoch)
        return self._permuted(len(self.dataset), f"{self.options.seed} {epoch}")

    def _sharded_order(self, epoch: int) -> Ints:
        """Row p of every batch comes from part p of ``global_batch`` equal parts.

        A part may have one row more than there are steps; the epoch's order decides which one is
        left out.
        """
        count, size = len(self.dataset), self.options.global_batch
        order = np.empty((self.steps_per_epoch, size), dtype=np.int64)
        for index in range(size):
            first, end = count * index // size, count * (index + 1) // size
            part = self._permuted(end - first, f"{self.options.seed} {epoch} {index}")
            order[:, index] = first + part[: self.steps_per_epoch]
        return order.reshape(-1)

    def _permuted(self, count: int, key: str) -> Ints:
        if not self.options.shuffle:
            return np.arange(count, dtype=np.int64)
        digest = hashlib.sha256(key.encode()).digest()
        shuffled = permutation(count, int.from_bytes(digest[:8], "little"))
        return shuffled.astype(np.int64, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cached": None}  # a worker computes the order itself

    def _costs(self, rows: Ints) -> npt.NDArray[np.float64]:
        costs = np.empty(len(rows))
        for index, row in enumerate(self.dataset.__getitems__(rows.tolist())):
            tokens = len(row["input_ids"])
            lengths = np.diff(row["document_starts"], append=tokens).astype(np.float64)
            costs[index] = tokens + _PER_PAIR * float((lengths**2).sum())
        return costs

    def require_whole_share(self) -> None:
        """Raise if the iteration was started by something that divides this rank's rows again."""
        from quire.training.sharding import require_whole_share

        require_whole_share(self.options.rank, self.options.world_size, "a loader of packed rows")

    def row_numbers(self) -> RowNumbers:
        """This rank's row numbers, one list per step: a ``batch_sampler`` for a DataLoader."""
        return RowNumbers(self)

    def torch(self) -> TorchBatches:
        """The same batches as a torch `IterableDataset`, for any number of workers.

        Use it as ``DataLoader(loader.torch(), batch_size=None, num_workers=n)``; every pass starts
        at the loader's position, also in persistent workers.
        """
        from quire.packed.torch_datasets import TorchBatches

        if self._shared_position is None:
            self._shared_position = SharedNumbers(*self._position)
        return TorchBatches(self, self._shared_position)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last delivered batch: JSON, the same on every rank."""
        return self._state(self.epoch, self.step)

    def state_after(self, epoch: int, step: int) -> dict[str, Any]:
        """The state after this step, for consumers that count what a DataLoader delivered.

        After the last step of an epoch, it is the start of the next epoch.
        """
        epoch, step = require_integer("epoch", epoch, 0), require_integer("step", step, 0)
        if step > self.steps_per_epoch:
            raise InvalidOption(f"step is {step} but an epoch has {self.steps_per_epoch}")
        if step == self.steps_per_epoch:
            epoch, step = epoch + 1, 0
        return self._state(epoch, step)

    def _state(self, epoch: int, step: int) -> dict[str, Any]:
        return _SEAL.sealed({"epoch": epoch, "step": step, **self._identity()})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state; the world size may differ."""
        fields, identity = _SEAL.unsealed(_SEAL.opened(state)), self._identity()
        for name, here in identity.items():
            if fields.get(name) != here:
                raise InvalidState(
                    f"{name} is {fields.get(name)!r} in the state and {here!r} here; continue with "
                    "the same dataset and options; only rank and world_size may differ"
                )
        if fields.keys() != {"epoch", "step", *identity}:
            raise InvalidState(
                f"the state has the fields {sorted(map(str, fields))} but must have "
                f"{sorted({'epoch', 'step', *identity})}; use a state as state_dict() returned it"
            )
        epoch, step = fields["epoch"], fields["step"]
        for name, value in (("epoch", epoch), ("step", step)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidState(f"{name} is {value!r} in the state but must be a number >= 0")
        if step >= self.steps_per_epoch:
            raise InvalidState(f"step is {step} but an epoch has {self.steps_per_epoch}")
        self._move(epoch, step)

    def _identity(self) -> dict[str, Any]:
        options = self.options
        return {
            "dataset": self.dataset.fingerprint,
            "rows": len(self.dataset),
            "global_batch": options.global_batch,
            "seed": options.seed,
            "shuffle": options.shuffle,
            "sharded": options.sharded,
        }


class RowNumbers:
    """Lists of row numbers from the loader's position to the end of its epoch."""

    def __init__(self, loader: PackedLoader) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        loader = self._loader
        loader.require_whole_share()
        epoch = loader.epoch
        for step in range(loader.step, loader.steps_per_epoch):
            yield loader.rows(epoch, step).tolist()
