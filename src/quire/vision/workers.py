"""Ranks and DataLoader workers: which share of the data each has, and how workers learn of changes.

torch is optional: without it the base classes are `object`, and there are no workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from quire.errors import InvalidOption, InvalidState
from quire.options import require_integer
from quire.worker_memory import SharedNumbers, worker_info

if TYPE_CHECKING:
    from torch.utils.data import Dataset, IterableDataset

    IterableBase: TypeAlias = IterableDataset[Any]
    MapBase: TypeAlias = Dataset[Any]
else:
    try:
        from torch.utils.data import Dataset as MapBase
        from torch.utils.data import IterableDataset as IterableBase
    except ImportError:  # packing works without torch
        IterableBase = MapBase = object


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Every ``count``-th item, starting at ``index``.

    >>> [n for n in range(7) if Share(index=1, count=3).owns(n)]
    [1, 4]
    """

    index: int = 0
    count: int = 1

    @classmethod
    def of_rank(cls, rank: int, world_size: int) -> Share:
        """The share of a rank; an error if there is no such rank."""
        world_size = require_integer("world_size", world_size, 1)
        rank = require_integer("rank", rank, 0)
        if rank >= world_size:
            raise InvalidOption(f"rank is {rank} but must be below world_size, {world_size}")
        return cls(index=rank, count=world_size)

    @classmethod
    def of_worker(cls) -> Share:
        """The share of this process among the workers of a `DataLoader`; all, outside of one."""
        info = worker_info()
        return cls() if info is None else cls(index=info.id, count=info.num_workers)

    def owns(self, number: int) -> bool:
        """Whether the item with this number is in the share."""
        return number % self.count == self.index

    def number(self, ordinal: int) -> int:
        """The number of the share's first, second, third item, counted from 0."""
        return self.index + ordinal * self.count

    def count_below(self, number: int) -> int:
        """How many items of the share have a smaller number.

        >>> Share(index=1, count=3).count_below(5)
        2
        """
        return max(0, -(-(number - self.index) // self.count))

    def divided(self, part: Share) -> Share:
        """A share of this share: of a rank's samples, those of one of its workers."""
        return Share(index=self.number(part.index), count=self.count * part.count)


class Update(NamedTuple):
    """What the main process has set most recently."""

    number: int
    """Incremented with every update."""
    epoch: int
    skip: int
    num_packs: int
    """-1: not fixed."""
    has_state: int
    """1 if a state was loaded; the state itself is too large to share."""


class WorkerUpdates:
    """The latest update of the main process, in memory shared with forked and spawned workers.

    Workers receive a copy of the dataset when they start. With ``persistent_workers=True`` they
    keep that copy for all passes, so they look here for what changed.
    """

    def __init__(self) -> None:
        self._number = 0
        self._shared = SharedNumbers(*Update(0, 0, 0, -1, 0))

    def send(self, *, epoch: int, skip: int, num_packs: int | None, has_state: bool) -> None:
        """Publish an update; a call inside a worker affects only its own copy."""
        if worker_info() is not None:
            return
        self._number += 1
        fixed = -1 if num_packs is None else num_packs
        self._shared.write(*Update(self._number, epoch, skip, fixed, int(has_state)))

    def receive(self) -> Update | None:
        """The latest update, in a worker that has not seen it yet."""
        if worker_info() is None:
            return None
        update = Update(*self._shared.read())
        if update.number == self._number:
            return None
        if update.has_state:
            raise InvalidState(
                "a state was loaded after the persistent workers of a DataLoader had started, so "
                "they cannot continue from it; make a new DataLoader after load_state_dict, or "
                "set persistent_workers=False"
            )
        self._number = update.number
        return update
