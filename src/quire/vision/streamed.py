"""Packs of samples whose lengths are seen only when they are read: a buffer at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
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
        self._options, self._budgets, self.delivery = options, budgets, delivery
        self._carry = CarryOver(budgets, options.packing_min_fill_ratio, options.packing_buffer)
        self._ready: deque[Group] = deque()
        self._held: dict[int, tuple[Any, tuple[int, ...]]] = {}
        self._num_read = 0
        self._finished = False

    def begin(self) -> None:
        """Nothing: samples are counted as they are read."""

    def pending(self) -> Iterator[tuple[int, int]]:
        """Positions and tokens of samples that were read and stand in no delivered pack."""
        return ((position, sizes[0]) for position, (_, sizes) in self._held.items())

    def __iter__(self) -> StreamedPacks:
        return self

    def __next__(self) -> list[Any]:
        while not self._ready:
            if self._finished:
                raise StopIteration
            self._refill()
        group = self._ready.popleft()
        held = [self._held.pop(position) for position in group.positions]
        members = [(at, sizes[0]) for at, (_, sizes) in zip(group.positions, held, strict=True)]
        self.delivery.emit(members, single_long=group.single_long)
        return [sample for sample, _ in held]

    def _refill(self) -> None:
        room = self._carry.room
        positions: list[int] = []
        while len(positions) < room:
            position = self._share.number(self._num_read)
            try:
                sample = self._samples.fetch(position)
            except InvalidDocument as problem:
                self._num_read += 1
                self._leave_out(position, 0, problem)
                continue
            if sample is End.OF_SAMPLES:
                break
            self._num_read += 1
            if self._admit(position, sample):
                positions.append(position)
        sizes = np.array([self._held[position][1] for position in positions], dtype=np.int64)
        self._carry.add(np.array(positions, dtype=np.int64), sizes)
        if len(positions) == room:
            self._ready.extend(self._carry.take_groups())
        else:
            self._finish()

    def _admit(self, position: int, sample: Any) -> bool:  # noqa: ANN401
        """Whether the sample goes into the buffer; if not, it is counted."""
        try:
            sizes = self._reader.sizes(sample)
        except InvalidDocument as problem:
            self._leave_out(position, _length_if_any(sample), problem)
            return False
        self.delivery.enter(position, sizes[0])
        long_is_fine = self._options.packing_allow_single_long
        if sizes[0] and (long_is_fine or not self._budgets.is_oversized(sizes)):
            self._held[position] = (sample, sizes)
            return True
        self.delivery.drop("skipped_oversized" if sizes[0] else "empty", position, sizes[0])
        return False

    def _leave_out(self, position: int, tokens: int, problem: InvalidDocument) -> None:
        self.delivery.enter(position, tokens)
        self.delivery.drop_bad(position, tokens, problem)

    def _finish(self) -> None:
        groups, last = self._carry.finish(drop_last=self._options.packing_drop_last)
        self._ready.extend(groups)
        self._finished = True
        for position in () if last is None else last.positions:
            _, sizes = self._held.pop(position)
            self.delivery.drop("drop_last", position, sizes[0])

    def place(self) -> dict[str, Any]:
        """Positions of the samples that are held, and how far the input was read."""
        carry = self._carry
        columns = np.column_stack([carry.positions, carry.carries, carry.sizes])
        return {
            "read": self._num_read,
            "finished": self._finished,
            "waiting": columns.tolist(),
            "ready": [
                [int(group.single_long), group.tokens, *group.positions] for group in self._ready
            ],
        }

    def restore(self, place: dict[str, Any]) -> None:
        """Hold again what a place tells of: those samples, and no others, are read anew."""
        self._num_read = read_count("read", place.get("read"))
        if (counted := self.delivery.num_input) != self._num_read:
            raise InvalidState(
                f"the state has read {self._num_read} samples but counted {counted}; use a state "
                "as state_dict() gave it"
            )
        self._finished = _flag("finished", place.get("finished"))
        waiting = read_rows("waiting", place.get("waiting"), 2 + len(self._budgets.names))
        ready = read_rows("ready", place.get("ready"))
        if any(len(row) < 3 for row in ready):
            raise InvalidState(
                "the state's ready packs must each hold a flag, tokens and positions"
            )
        self._hold([row[0] for row in waiting] + [at for row in ready for at in row[2:]])
        for position, carries, *sizes in waiting:
            read_count("carries", carries, MOST_CARRIES)
            self._require_same(f"sample {position}", sizes, self._held[position][1])
        self._restore_waiting(waiting)
        for single_long, tokens, *positions in ready:
            self._restore_ready(bool(single_long), tokens, positions)

    def _restore_waiting(self, waiting: list[list[int]]) -> None:
        positions, carries, *sizes = np.array(waiting, dtype=np.int64).T if waiting else ((), ())
        self._carry.add(np.array(positions, dtype=np.int64), np.array(sizes, dtype=np.int64).T)
        self._carry.carries = np.array(carries, dtype=np.int64)

    def _restore_ready(self, single_long: bool, tokens: int, positions: list[int]) -> None:
        found = sum(self._held[position][1][0] for position in positions)
        self._require_same(f"the pack of samples {positions}", [tokens], (found,))
        group = Group(positions=tuple(positions), tokens=tokens, single_long=single_long)
        self._ready.append(group)

    def _hold(self, positions: list[Any]) -> None:
        end = self._share.number(self._num_read)
        owned = [p for p in positions if self._share.owns(read_count("position", p, end - 1))]
        if len(set(owned)) < len(positions):
            raise InvalidState("the state holds a sample twice, or one of another rank or worker")
        for position in sorted(positions):  # datasets that are read in order go forward only
            self._held[position] = self._read_again(position)

    def _read_again(self, position: int) -> tuple[Any, tuple[int, ...]]:
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

    @staticmethod
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
