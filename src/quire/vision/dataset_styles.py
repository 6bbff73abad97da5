"""Packs in the two forms that trainers know: by number (map-style), or in order and without `len`.

Trainers that ask ``hasattr(dataset, "__len__")`` (ms-swift's does) give a dataset with a length a
sampler, which an iterable dataset cannot take.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from quire.errors import InvalidOption
from quire.vision.epochs import Epoch
from quire.vision.planned import PackReader
from quire.vision.reading import has_positions, open_samples
from quire.vision.schedule import Schedule
from quire.vision.state import State
from quire.vision.torch_base import IterableBase, MapBase

if TYPE_CHECKING:
    from quire.vision.wrapper import PackedVLDataset


class MapStylePacks(MapBase):
    """The packs of an epoch by number, for trainers whose sampler deals them to ranks.

    Made by `PackedVLDataset.map_style`.

    >>> from quire.vision import PackedVLDataset
    >>> packs = PackedVLDataset([{"length": n} for n in (6, 7, 2)], packing_length=8).map_style()
    >>> len(packs), packs[0], packs.packed_length
    (2, [{'length': 6}, {'length': 2}], [8, 7])
    """

    def __init__(self, packed: PackedVLDataset) -> None:
        _require_all_ranks(packed)
        if not has_positions(packed.dataset):
            raise InvalidOption(
                f"a {type(packed.dataset).__name__} is read in order, so its packs have no "
                "numbers; give a dataset with __getitem__ and __len__, or use iterable_style()"
            )
        if packed.current_epoch().schedule is None:
            raise InvalidOption(
                "packs by number need known lengths; give "
                f"{packed.lengths_needed}, or use iterable_style()"
            )
        self.packed = packed
        self._opened: _OpenedPacks | None = None

    def __len__(self) -> int:
        return len(self._schedule.packs)

    def __getitem__(self, number: int) -> list[Any]:
        """A pack; it is read anew whenever it is asked for."""
        place = range(len(self))[operator.index(number)]
        epoch = self.packed.current_epoch()
        if self._opened is None or self._opened.epoch is not epoch:
            self._opened = _OpenedPacks(epoch, self._schedule, self.packed.dataset)
        return self._opened.read(place)

    @property
    def packed_length(self) -> list[int]:
        """Tokens of every pack; the name is that of ms-swift's packing dataset."""
        return [group.tokens for group in self._schedule.packs]

    def set_epoch(self, epoch: int) -> None:
        """Rebuild the packs for another epoch: `PackedVLDataset.set_epoch`."""
        self.packed.set_epoch(epoch)

    @property
    def _schedule(self) -> Schedule:
        schedule = self.packed.current_epoch().schedule
        if schedule is None:  # a dataset that forgot its lengths
            raise InvalidOption(
                f"lengths are not known any more; give {self.packed.lengths_needed}"
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


class _OpenedPacks:
    """An epoch's samples and the bad ones among them, counted once however often they are read."""

    def __init__(self, epoch: Epoch, schedule: Schedule, dataset: object) -> None:
        self.epoch, self._schedule = epoch, schedule
        self._reader = PackReader(schedule.sizes, epoch.reader)
        self._samples = open_samples(dataset)
        self._delivery = epoch.delivery()
        self._numbers_read: set[int] = set()

    def read(self, number: int) -> list[Any]:
        is_first = number not in self._numbers_read
        delivery = self._delivery.copy() if is_first else self.epoch.delivery(silent=True)
        kept = self._reader.read(self._schedule.packs[number], self._samples, delivery)
        if is_first:
            self._delivery = delivery
            self._numbers_read.add(number)
        return [sample for _, sample in kept]


def _require_all_ranks(packed: PackedVLDataset) -> None:
    rank, world_size = packed.rank
    if world_size != 1:
        raise InvalidOption(
            f"the packed dataset is of rank {rank} of {world_size}, but a trainer that takes this "
            "form gives packs to ranks itself; leave rank and world_size out"
        )
