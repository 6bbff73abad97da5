"""A packed dataset in the forms that trainers expect.

`MapStylePacks` has packs by number. `IterableStylePacks` has no `len`: trainers that check
``hasattr(dataset, "__len__")`` (ms-swift's does) give a dataset with a length a sampler, which an
iterable dataset cannot take. `TrainingPacks` is for transformers' Trainer.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from quire.errors import InvalidOption
from quire.vision.epoch import Epoch
from quire.vision.iterator import PlannedPacks
from quire.vision.plan import Schedule, equal_num_packs
from quire.vision.source import has_random_access
from quire.vision.state import State
from quire.vision.workers import IterableBase, MapBase, Share

if TYPE_CHECKING:
    from quire.vision.dataset import PackedVLDataset


class MapStylePacks(MapBase):
    """The packs of an epoch by number, for trainers whose sampler assigns them to ranks.

    Made by `PackedVLDataset.map_style`.

    >>> from quire.vision import PackedVLDataset
    >>> packs = PackedVLDataset([{"length": n} for n in (6, 7, 2)], packing_length=8).map_style()
    >>> len(packs), packs[0], packs.packed_length
    (2, [{'length': 6}, {'length': 2}], [8, 7])
    """

    def __init__(self, packed: PackedVLDataset) -> None:
        _require_all_ranks(packed)
        if not has_random_access(packed.dataset):
            raise InvalidOption(
                f"a {type(packed.dataset).__name__} is read in order, so its packs have no "
                "numbers; use a dataset with __getitem__ and __len__, or iterable_style()"
            )
        self.packed = packed
        _ = self._schedule  # raises if lengths are not known
        self._opened: tuple[Epoch, PlannedPacks] | None = None

    def __len__(self) -> int:
        return len(self._schedule.packs)

    def __getitem__(self, number: int) -> list[Any]:
        """A pack; its samples are read every time, and malformed ones counted once."""
        index = range(len(self))[operator.index(number)]
        epoch = self.packed.current_epoch()
        if self._opened is None or self._opened[0] is not epoch:
            self._opened = epoch, epoch.planned_packs(self._schedule)
            self._counters, self._counted = epoch.counters(), set[int]()
        packs = self._opened[1]
        if index in self._counted:
            return packs.read(index, epoch.counters(silent=True))
        pack = packs.read(index, counters := self._counters.copy())
        self._counters = counters
        self._counted.add(index)
        return pack

    @property
    def packed_length(self) -> list[int]:
        """Tokens of every pack, under the name that ms-swift's packing dataset uses."""
        return [group.tokens for group in self._schedule.packs]

    def set_epoch(self, epoch: int) -> None:
        """Rebuild the packs for another epoch: `PackedVLDataset.set_epoch`."""
        self.packed.set_epoch(epoch)

    @property
    def _schedule(self) -> Schedule:
        schedule = self.packed.current_epoch().schedule
        if schedule is None:
            raise InvalidOption(
                "packs by number need known lengths; give "
                f"{self.packed.lengths_needed}, or use iterable_style()"
            )
        return schedule

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}  # a worker opens its own


class IterableStylePacks(IterableBase):
    """The packs in order, without a length, for trainers that send each pack to one rank.

    Made by `PackedVLDataset.iterable_style`.

    >>> from quire.vision import PackedVLDataset
    >>> packs = PackedVLDataset([{"length": n} for n in (6, 7)], packing_length=8).iterable_style()
    >>> hasattr(packs, "__len__"), list(packs)
    (False, [[{'length': 6}], [{'length': 7}]])
    """

    def __init__(self, packed: PackedVLDataset) -> None:
        _require_all_ranks(packed)
        self.packed = packed

    def __iter__(self) -> Iterator[list[Any]]:
        return iter(self.packed)

    def set_epoch(self, epoch: int) -> None:
        """Rebuild the packs for another epoch."""
        self.packed.set_epoch(epoch)

    def state_dict(self) -> State:
        """The state of the packs: `PackedVLDataset.state_dict`."""
        return self.packed.state_dict()

    def load_state_dict(self, state: object) -> None:
        """Continue from a state: `PackedVLDataset.load_state_dict`."""
        self.packed.load_state_dict(state)


def _require_all_ranks(packed: PackedVLDataset) -> None:
    rank, world_size = packed.rank
    if world_size != 1:
        raise InvalidOption(
            f"the packed dataset is of rank {rank} of {world_size}, but a trainer that takes this "
            "form assigns packs to ranks itself; leave rank and world_size out"
        )


class TrainingPacks(IterableBase):
    """The packs of a rank, each ``num_copies`` times in a row, for transformers' Trainer.

    accelerate assumes that all ranks read the same iterable dataset, and keeps every n-th item of
    n ranks. These packs belong to one rank already: repeated n times each, all of them remain.

    >>> from quire.vision import PackedVLDataset
    >>> packed = PackedVLDataset([{"length": n} for n in (6, 7)], packing_length=8)
    >>> [[s["length"] for s in pack] for pack in TrainingPacks(packed, num_copies=2)]
    [[6], [6], [7], [7]]
    """

    def __init__(self, packed: PackedVLDataset, num_copies: int = 1) -> None:
        self.packed = packed
        self._num_copies = num_copies
        self._num_done = 0

    @property
    def is_sized(self) -> bool:
        """Whether the number of packs is known before they are made."""
        try:
            len(self.packed)
        except TypeError:
            return False
        return True

    def equalize_epochs(self, num_epochs: int) -> None:
        """Give all epochs the same number of packs: a Trainer measures only the first one."""
        epochs = []
        for epoch in reversed(range(num_epochs)):
            self.packed.set_epoch(epoch)
            epochs.append(self.packed.pack_counts())
        self.packed.fix_num_packs(equal_num_packs(epochs))

    def set_epoch(self, epoch: int) -> None:
        """Move to another epoch; a Trainer sets the same one several times."""
        if epoch != self.packed.epoch:
            self.packed.set_epoch(epoch)
            self._num_done = 0

    def resume(self, epoch: int, num_packs: int) -> None:
        """Yield empty packs in place of the first ones of this epoch, which a Trainer discards.

        Their samples are not read.
        """
        self.packed.set_epoch(epoch)
        self._num_done = num_packs

    def __len__(self) -> int:
        return len(self.packed) * self._num_copies

    def __iter__(self) -> Iterator[list[Any]]:
        if self._num_done:
            self.packed.skip_packs(self._num_done)
        for _ in range(Share.of_worker().count_below(self._num_done) * self._num_copies):
            yield []
        for pack in self.packed:
            for _ in range(self._num_copies):
                yield pack
