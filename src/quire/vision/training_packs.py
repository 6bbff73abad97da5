"""Packs as a Trainer takes them: as many in every epoch, and each rank's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quire.vision.schedule import even_num_packs
from quire.vision.torch_base import IterableBase, worker_share
from quire.vision.wrapper import PackedVLDataset


class TrainingPacks(IterableBase):
    """The packs of a rank, each ``num_copies`` times in a row.

    accelerate takes an iterable dataset for one that all ranks read alike, and keeps every n-th
    item of n ranks. A rank's packs are its own already: given n times each, all of them stay.

    >>> packed = PackedVLDataset([{"length": n} for n in (6, 7)], packing_length=8)
    >>> [[s["length"] for s in pack] for pack in TrainingPacks(packed, num_copies=2)]
    [[6], [6], [7], [7]]
    """

    def __init__(self, packed: PackedVLDataset, num_copies: int = 1) -> None:
        self.packed = packed
        self._num_copies = num_copies
        self._num_had = 0

    def even_out(self, num_epochs: int) -> None:
        """Give all epochs the same number of packs: a Trainer measures only the first one."""
        counts = []
        for epoch in reversed(range(num_epochs)):
            self.packed.set_epoch(epoch)
            counts.append(self.packed.pack_counts())
        self.packed.fix_num_packs(even_num_packs(counts))

    def set_epoch(self, epoch: int) -> None:
        """Tell the packs of the epoch, once: a Trainer names it several times."""
        if epoch != self.packed.epoch:
            self.packed.set_epoch(epoch)
            self._num_had = 0

    def go_on_behind(self, epoch: int, num_packs: int) -> None:
        """Give empty packs in place of this epoch's first ones, which a Trainer had and discards.

        No sample of them is read.
        """
        self.packed.set_epoch(epoch)
        self._num_had = num_packs

    def __len__(self) -> int:
        return len(self.packed) * self._num_copies

    def __iter__(self) -> Iterator[list[Any]]:
        if self._num_had:
            self.packed.skip_packs(self._num_had)
        for _ in range(worker_share().count_below(self._num_had) * self._num_copies):
            yield []
        for pack in self.packed:
            for _ in range(self._num_copies):
                yield pack


def is_sized(packed: PackedVLDataset) -> bool:
    """Whether the number of packs is known before they are made."""
    try:
        len(packed)
    except TypeError:
        return False
    return True
