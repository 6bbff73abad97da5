"""Packs of samples whose lengths are seen only when they are read: a buffer at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from quire.errors import InvalidDocument, InvalidState, SourceChanged
from quire.vision.budgets import Budgets
from quire.vision.carry_over import MOST_CARRIES, CarryOver, Group
from quire.vision.delivery import Delivery
from quire.vision.options import VisionPackingOptions
from quire.vision.ranks import Share
from quire.vision.reading import End, Samples
from quire.vision.samples import SampleReader, length_of
from quire.vision.stands import Held, Ready, Stand
from quire.vision.state import read_count, read_rows


class StreamedPacks:
    """An iterator over one process's packs; it holds the samples of a buffer and no more."""

    def __init__(
        self,
        samples: Samples,
        share: Share,
        options: VisionPackingOptions,
        budgets: Budgets,
        reader: SampleReader,
        delivery: Delivery,
    ) -> None:
        self._samples, self._share, self._reader = samples, share, reader
        self._options, self._budgets = options, budgets
        carry = CarryOver(budgets, options.packing_min_fill_ratio, options.packing_buffer)
        self._stand = Stand(delivery=delivery, carry=carry, held={}, appended=[])

    @property
    def delivery(self) -> Delivery:
        """The books."""
        return self._stand.delivery

    def begin(self) -> None:
        """Nothing: samples are counted as they are read."""

    def pending(self) -> Iterator[tuple[int, int]]:
        """Positions and tokens of samples that were read and stand in no delivered pack."""
        return self._stand.pending()

    def __iter__(self) -> StreamedPacks:
        return self

    def __next__(self) -> list[Any]:
        while not (stand := self._stand).ready:
            if stand.finished:
                raise StopIteration
            self._refill()
        (group, members), *later = stand.ready
        books = stand.delivery.copy()
        tokens = [sizes[0] for _, sizes in members]
        books.emit(zip(group.positions, tokens, strict=True), single_long=group.single_long)
        pack = [sample for sample, _ in members]
        self._stand = stand._replace(delivery=books, ready=tuple(later))
        return pack

    def _refill(self) -> None:
        room = self._stand.carry.room
        while self._stand.num_new < room:
            if not self._read():
                break
        self._stand = self._grouped(self._stand, is_last=self._stand.num_new < room)

    def _read(self) -> bool:
        """Whether there was one more sample: it is in the buffer then, or left out and counted."""
        stand, sample, held = self._stand, None, None
        position, books = self._share.number(stand.num_read), stand.delivery.copy()
        try:
            sample = self._samples.fetch(position)
            if sample is End.OF_SAMPLES:
                return False
            sizes = self._reader.sizes(sample)
        except InvalidDocument as problem:
            tokens = _length_if_any(sample)
            books.enter(position, tokens)
            books.drop_bad(position, tokens, problem)
        else:
            held = (sample, sizes) if self._is_admitted(position, sizes, books) else None
        self._stand = stand.with_sample(position, held, books)
        return True

    def _is_admitted(self, position: int, sizes: tuple[int, ...], books: Delivery) -> bool:
        """Whether the sample goes into the buffer; it is counted, and if it does not, why."""
        books.enter(position, sizes[0])
        long_is_fine = self._options.packing_allow_single_long
        if sizes[0] and (long_is_fine or not self._budgets.is_oversized(sizes)):
            return True
        books.drop("skipped_oversized" if sizes[0] else "empty", position, sizes[0])
        return False

    def _grouped(self, stand: Stand, *, is_last: bool) -> Stand:
        """Where the packs stand with the groups that leave the buffer."""
        carry, books = replace(stand.carry), stand.delivery.copy()
        held = {**stand.held, **dict(stand.new)}
        positions = np.array([position for position, _ in stand.new], dtype=np.int64)
        carry.add(positions, np.array([sizes for _, (_, sizes) in stand.new], dtype=np.int64))
        if is_last:
            groups, underfilled = carry.finish(drop_last=self._options.packing_drop_last)
            for position in () if underfilled is None else underfilled.positions:
                books.drop("drop_last", position, held[position][1][0])
        else:
            groups = carry.take_groups()
        return Stand(
            delivery=books,
            carry=carry,
            held={position: held[position] for position in carry.positions.tolist()},
            appended=[],
            num_read=stand.num_read,
            finished=is_last,
            ready=tuple(Ready(group, [held[p] for p in group.positions]) for group in groups),
        )

    def place(self) -> dict[str, Any]:
        """Positions of the samples that are held, and how far the input was read."""
        return self._stand.place()

    def restore(self, place: dict[str, Any]) -> None:
        """Hold again what a place tells of: those samples, and no others, are read anew."""
        num_read = read_count("read", place.get("read"))
        if (counted := self.delivery.num_input) != num_read:
            raise InvalidState(
                f"the state has read {num_read} samples but counted {counted}; use a state as "
                "state_dict() gave it"
            )
        finished = _flag("finished", place.get("finished"))
        waiting = read_rows("waiting", place.get("waiting"), 2 + len(self._budgets.names))
        ready = read_rows("ready", place.get("ready"))
        if any(len(row) < 3 for row in ready):
            raise InvalidState(
                "the state's ready packs must each hold a flag, tokens and positions"
            )
        positions = [row[0] for row in waiting] + [at for row in ready for at in row[2:]]
        held = self._read_all_again(positions, self._share.number(num_read))
        self._stand = self._stand._replace(
            carry=self._waiting_again(waiting, held),
            held={row[0]: held[row[0]] for row in waiting},
            num_read=num_read,
            finished=finished,
            ready=tuple(_ready_again(row, held) for row in ready),
        )

    def _waiting_again(self, waiting: list[list[int]], held: Mapping[int, Held]) -> CarryOver:
        for position, num_carries, *measured in waiting:
            read_count("carries", num_carries, MOST_CARRIES)
            _require_same(f"sample {position}", measured, held[position][1])
        positions, carries, *sizes = np.array(waiting, dtype=np.int64).T if waiting else ((), ())
        carry = replace(self._stand.carry)
        carry.add(np.array(positions, dtype=np.int64), np.array(sizes, dtype=np.int64).T)
        carry.carries = np.array(carries, dtype=np.int64)
        return carry

    def _read_all_again(self, positions: list[Any], end: int) -> dict[int, Held]:
        owned = [p for p in positions if self._share.owns(read_count("position", p, end - 1))]
        if len(set(owned)) < len(positions):
            raise InvalidState("the state holds a sample twice, or one of another rank or worker")
        # Sorted, because datasets that are read in order go forward only.
        return {position: self._read_again(position) for position in sorted(positions)}

    def _read_again(self, position: int) -> Held:
        try:
            sample = self._samples.fetch(position)
            sizes = () if sample is End.OF_SAMPLES else self._reader.sizes(sample)
        except InvalidDocument as problem:
            raise SourceChanged(
                f"sample {position} {problem}, but the state holds it; continue with the same "
                "dataset"
            ) from problem
        if sample is End.OF_SAMPLES:
            raise SourceChanged(
                f"the dataset ends before sample {position}, which the state holds; continue "
                "with the same dataset"
            )
        return sample, sizes


def _ready_again(row: list[int], held: Mapping[int, Held]) -> Ready:
    single_long, tokens, *positions = row
    members = [held[position] for position in positions]
    found = sum(sizes[0] for _, sizes in members)
    _require_same(f"the pack of samples {positions}", [tokens], (found,))
    group = Group(positions=tuple(positions), tokens=tokens, single_long=bool(single_long))
    return Ready(group, members)


def _require_same(what: str, saved: list[int], found: tuple[int, ...]) -> None:
    if list(saved) != list(found):
        raise SourceChanged(
            f"{what} measures {list(found)} but {list(saved)} in the state; continue with the "
            "same dataset"
        )


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidState(f"the state's {name} is {value!r:.60} but must be true or false")
    return value


def _length_if_any(sample: Any) -> int:  # noqa: ANN401
    try:
        return length_of(sample)
    except (InvalidDocument, AttributeError):
        return 0
