"""Batches of rows whose sequence depends on neither the world size nor the number of workers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, InvalidState, require_flags
from quire.plan import balance
from quire.plan.options import require_integer, settle_integers
from quire.plan.shuffling import permutation
from quire.seals import Seal
from quire.worker_memory import SharedNumbers

if TYPE_CHECKING:
    from quire.packed.dataset import PackedDataset, Row
    from quire.packed.torch_view import TorchBatches

Ints = npt.NDArray[np.int64]
_SEAL = Seal(
    format="quire.loader",
    owner="a loader of packed rows",
    migrations={1: lambda body: {"sharded": False} | body},  # at first it was not an option
    first=2,
)
_PER_PAIR = 2e-5
"""The cost of a pair of tokens that attend beside that of a token: `quire.attention_costs`'."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoaderOptions:
    """Which rows come when, and which of them are this rank's."""

    global_batch: int
    """Rows of a step, over all ranks."""
    rank: int = 0
    world_size: int = 1
    seed: int = 0
    shuffle: bool = True
    """Another order in every epoch."""
    balance: bool = False
    """Deal the rows of a step to ranks by their attention cost."""
    sharded: bool = False
    """Every place in a batch has a part of the dataset of its own, and so has every rank: it reads
    the shards of its part, not all. The sequence is still the same for every world size."""

    def __post_init__(self) -> None:
        require_flags(self)
        if self.sharded and self.balance:
            raise InvalidOption(
                "balance deals rows to any rank, sharded keeps every rank to its own part; leave "
                "one of them out"
            )
        settle_integers(self, {"global_batch": 1, "world_size": 1, "rank": 0, "seed": 0})
        if self.rank >= self.world_size:
            raise InvalidOption(f"rank is {self.rank} but world_size is {self.world_size}")
        if self.global_batch % self.world_size:
            raise InvalidOption(
                f"world_size={self.world_size} does not divide global_batch={self.global_batch}; "
                "choose one that does, so that every rank gets as many rows"
            )


class PackedLoader:
    """This rank's batches, from wherever the state says to the end of the epoch.

    Iterating again goes on with the next epoch. Rows that do not fill a last step are left for
    another epoch's order (``num_left_over``); every rank has as many steps.
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
        self._place = (require_integer("epoch", epoch, 0), 0)
        self._shared_place: SharedNumbers | None = None
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
        return self._place[0]

    @property
    def step(self) -> int:
        """The step of the next batch, in its epoch."""
        return self._place[1]

    def _move(self, epoch: int, step: int) -> None:
        self._place = (epoch, step)
        if self._shared_place is not None:
            self._shared_place.write(epoch, step)

    @property
    def steps_per_epoch(self) -> int:
        """Steps of every rank."""
        return len(self.dataset) // self.options.global_batch

    @property
    def num_left_over(self) -> int:
        """Rows that an epoch leaves out, because they do not fill a step."""
        return len(self.dataset) % self.options.global_batch

    def __len__(self) -> int:
        return self.steps_per_epoch - self.step

    def __iter__(self) -> Iterator[Any]:
        epoch = self.epoch
        while self.epoch == epoch:
            step = self.step
            batch = self.batch(epoch, step)
            # Before it is given away: the state describes what was delivered.
            is_last = step + 1 == self.steps_per_epoch
            self._move(*((epoch + 1, 0) if is_last else (epoch, step + 1)))
            yield batch

    def batch(self, epoch: int, step: int) -> Any:  # noqa: ANN401 - whatever collate gives
        """One step's rows of this rank, collated; an epoch has steps from 0 on."""
        rows = self.dataset.__getitems__(self.rows(epoch, step).tolist())
        return rows if self.collate is None else self.collate(rows)

    def rows(self, epoch: int, step: int) -> Ints:
        """The numbers of this rank's rows in one step."""
        epoch, step = require_integer("epoch", epoch, 0), require_integer("step", step, 0)
        if step >= self.steps_per_epoch:
            count = self.steps_per_epoch
            raise InvalidOption(
                f"step is {step} but an epoch has {count}: ask for 0 to {count - 1}"
            )
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
        """Place p of every batch is taken from part p of as many equal parts as there are places.

        A part may have a row more than there are steps; which one waits, the epoch's order says.
        """
        count, size = len(self.dataset), self.options.global_batch
        order = np.empty((self.steps_per_epoch, size), dtype=np.int64)
        for place in range(size):
            first, end = count * place // size, count * (place + 1) // size
            part = self._permuted(end - first, f"{self.options.seed} {epoch} {place}")
            order[:, place] = first + part[: self.steps_per_epoch]
        return order.reshape(-1)

    def _permuted(self, count: int, said: str) -> Ints:
        if not self.options.shuffle:
            return np.arange(count, dtype=np.int64)
        digest = hashlib.sha256(said.encode()).digest()
        shuffled = permutation(count, int.from_bytes(digest[:8], "little"))
        return shuffled.astype(np.int64, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cached": None}  # a worker makes the order itself

    def _costs(self, rows: Ints) -> npt.NDArray[np.float64]:
        costs = np.empty(len(rows))
        for place, row in enumerate(self.dataset.__getitems__(rows.tolist())):
            tokens = len(row["input_ids"])
            lengths = np.diff(row["document_starts"], append=tokens).astype(np.float64)
            costs[place] = tokens + _PER_PAIR * float((lengths**2).sum())
        return costs

    def row_numbers(self) -> RowNumbers:
        """This rank's row numbers, a list a step: a ``batch_sampler`` for torch's DataLoader."""
        return RowNumbers(self)

    def torch(self) -> TorchBatches:
        """The same batches as a torch `IterableDataset`, for any number of workers.

        Use it as ``DataLoader(loader.torch(), batch_size=None, num_workers=n)``; persistent workers
        start every pass where the loader is.
        """
        from quire.packed.torch_view import TorchBatches

        if self._shared_place is None:
            self._shared_place = SharedNumbers(*self._place)
        return TorchBatches(self, self._shared_place)

    def state_dict(self) -> dict[str, Any]:
        """Where the last delivered batch ends: JSON, the same on every rank."""
        return self._state(self.epoch, self.step)

    def state_after(self, epoch: int, step: int) -> dict[str, Any]:
        """The state behind so many steps: for consumers that count what a DataLoader delivered.

        Behind all steps of an epoch stands the beginning of the next.
        """
        epoch, step = require_integer("epoch", epoch, 0), require_integer("step", step, 0)
        if step > self.steps_per_epoch:
            raise InvalidOption(f"step is {step} but an epoch has {self.steps_per_epoch}")
        if step == self.steps_per_epoch:
            epoch, step = epoch + 1, 0
        return self._state(epoch, step)

    def _state(self, epoch: int, step: int) -> dict[str, Any]:
        return _SEAL.sealed({"epoch": epoch, "step": step, **self._terms()})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue behind a state; the world size may be another one."""
        fields, terms = _opened(state), self._terms()
        for name, here in terms.items():
            if fields.get(name) != here:
                raise InvalidState(
                    f"{name} is {fields.get(name)!r} in the state and {here!r} here; continue with "
                    "the same dataset and options, of which only rank and world size may differ"
                )
        if fields.keys() != {"epoch", "step", *terms}:
            raise InvalidState(
                f"the state has the fields {sorted(map(str, fields))} but must have "
                f"{sorted({'epoch', 'step', *terms})}; use a state as state_dict() gave it"
            )
        epoch, step = fields["epoch"], fields["step"]
        for name, value in (("epoch", epoch), ("step", step)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise InvalidState(f"{name} is {value!r} in the state but must be a number >= 0")
        if step >= self.steps_per_epoch:
            raise InvalidState(f"step is {step} but an epoch has {self.steps_per_epoch}")
        self._move(epoch, step)

    def _terms(self) -> dict[str, Any]:
        options = self.options
        return {
            "dataset": self.dataset.fingerprint,
            "rows": len(self.dataset),
            "global_batch": options.global_batch,
            "seed": options.seed,
            "shuffle": options.shuffle,
            "sharded": options.sharded,
        }


def _opened(state: object) -> dict[str, Any]:
    """The state without its seal."""
    return _SEAL.unsealed(_SEAL.opened(state))


class RowNumbers:
    """Lists of row numbers from the loader's place to the end of its epoch."""

    def __init__(self, loader: PackedLoader) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        loader = self._loader
        epoch = loader.epoch
        for step in range(loader.step, loader.steps_per_epoch):
            yield loader.rows(epoch, step).tolist()
