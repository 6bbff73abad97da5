"""Packs of a schedule, whose samples are read when their turn comes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from quire.errors import InvalidDocument, InvalidLengths
from quire.plan.lengths import IntArray
from quire.vision.carry_over import Group
from quire.vision.delivery import Delivery
from quire.vision.ranks import Share
from quire.vision.reading import End, Samples
from quire.vision.samples import SampleReader
from quire.vision.schedule import Schedule
from quire.vision.state import read_count


class _Stand(NamedTuple):
    """Which pack is next, and the books: replaced as a whole, or not at all if a pack fails."""

    delivered: int
    delivery: Delivery


class PackReader:
    """Reads the samples of planned packs and compares them with what was planned."""

    def __init__(self, sizes: IntArray, reader: SampleReader) -> None:
        self._sizes, self._reader = sizes, reader

    def read(self, group: Group, samples: Samples, books: Delivery) -> list[tuple[int, Any]]:
        """Positions and samples of a pack; those that are malformed are left out and counted."""
        kept = []
        for position in group.positions:
            try:
                sample = samples.fetch(position)
            except InvalidDocument as problem:
                books.drop_bad(position, self.tokens(position), problem)
                continue
            if sample is End.OF_SAMPLES:
                raise InvalidLengths(
                    f"the dataset ends before sample {position} but there are {len(self._sizes)} "
                    "lengths; give one length for each sample"
                )
            if self._is_sound(position, sample, books):
                kept.append((position, sample))
        if not kept:
            raise InvalidDocument(
                f"sample {group.positions[-1]} was left out as malformed and its pack holds no "
                "other, but as many packs must come as were planned: ranks, len() and whoever "
                "resumes count on it; leave it out of the dataset, or pack without known lengths"
            )
        return kept

    def _is_sound(self, position: int, sample: object, books: Delivery) -> bool:
        try:
            measured = self._reader.sizes(sample)
        except InvalidDocument as problem:
            books.drop_bad(position, self.tokens(position), problem)
            return False
        if list(measured) != (planned := self._sizes[position].tolist()):
            raise InvalidLengths(
                f"sample {position} measures {list(measured)} {self._reader.names} but the packs "
                f"were planned with {planned}; give the lengths that the samples have"
            )
        return True

    def tokens(self, position: int) -> int:
        """The planned length of a sample."""
        return int(self._sizes[position, 0])


class PlannedPacks:
    """An iterator over one process's packs; of n workers each has every n-th pack."""

    def __init__(
        self,
        schedule: Schedule,
        share: Share,
        open_samples: Callable[[Collection[int]], Samples],
        reader: SampleReader,
        delivery: Delivery,
    ) -> None:
        self._sizes, self._reader = schedule.sizes, PackReader(schedule.sizes, reader)
        self._packs = schedule.packs[share.index :: share.count]
        self._dropped = schedule.dropped if share.index == 0 else []
        self._open_samples = open_samples
        self._samples: Samples | None = None
        self._stand = _Stand(delivered=0, delivery=delivery)

    @property
    def delivery(self) -> Delivery:
        """The books."""
        return self._stand.delivery

    @property
    def _delivered(self) -> int:
        return self._stand.delivered

    def begin(self) -> None:
        """Count what the schedule holds; for an epoch that is not a continued one."""
        for group in self._packs:
            for position in group.positions:
                self.delivery.enter(position, self._reader.tokens(position))
        for reason, position in self._dropped:
            self.delivery.enter(position, self._reader.tokens(position))
            self.delivery.drop(reason, position, self._reader.tokens(position))

    def restore(self, place: dict[str, Any]) -> None:
        """Go on behind the packs that were delivered."""
        delivered = read_count("delivered", place.get("delivered"), len(self._packs))
        self._stand = self._stand._replace(delivered=delivered)

    def skip(self, number: int) -> None:
        """Count the next packs as delivered, unread: who goes on behind them has had them."""
        skipped = self._packs[self._delivered : self._delivered + number]
        books = self.delivery.copy()
        for group in skipped:
            members = [(position, self._reader.tokens(position)) for position in group.positions]
            books.emit(members, single_long=group.single_long)
        self._stand = _Stand(delivered=self._delivered + len(skipped), delivery=books)

    def place(self) -> dict[str, Any]:
        """Where the next pack stands."""
        return {"delivered": self._delivered}

    def pending(self) -> Iterator[tuple[int, int]]:
        """Positions and tokens of samples that are still to come."""
        for group in self._packs[self._delivered :]:
            for position in group.positions:
                yield position, self._reader.tokens(position)

    def __iter__(self) -> PlannedPacks:
        return self

    def __next__(self) -> list[Any]:
        if self._samples is None:
            self._samples = self._open_samples({position for position, _ in self.pending()})
        if self._delivered:  # only now: a pack that could not be read whole is read once more
            self._samples.forget(self._packs[self._delivered - 1].positions)
        if self._delivered == len(self._packs):
            self._require_end(self._samples)
            raise StopIteration
        group, books = self._packs[self._delivered], self.delivery.copy()
        kept = self._reader.read(group, self._samples, books)
        members = [(position, self._reader.tokens(position)) for position, _ in kept]
        books.emit(members, single_long=group.single_long)
        pack = [sample for _, sample in kept]
        self._stand = _Stand(delivered=self._delivered + 1, delivery=books)
        return pack

    def _require_end(self, samples: Samples) -> None:
        if samples.fetch(len(self._sizes)) is not End.OF_SAMPLES:
            raise InvalidLengths(
                f"there are {len(self._sizes)} lengths but the dataset goes on; give one length "
                "for each sample"
            )
