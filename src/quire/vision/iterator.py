"""Iterate over one process's packs, whether lengths are known in advance or not.

`PackIterator` delivers packs, counts them and saves where it is. `PlannedPacks` knows all packs
from the start and reads their samples when a pack is due. `BufferedPacks` reads samples to learn
their lengths and groups a buffer at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from quire.errors import InvalidDocument, InvalidLengths, InvalidState, SourceChanged
from quire.vision.counters import PackCounters
from quire.vision.grouping import MOST_CARRIES, Group, PackBuffer
from quire.vision.options import PackRules
from quire.vision.plan import Schedule
from quire.vision.samples import SampleReader, length_or_zero
from quire.vision.source import End, Samples
from quire.vision.state import read_count, read_flag, read_rows
from quire.vision.workers import Share

Sizes: TypeAlias = tuple[int, ...]
Held: TypeAlias = tuple[Any, Sizes]
"""A sample and its sizes."""


class Progress(NamedTuple):
    """Everything an iterator remembers, replaced as a whole with every sample and every pack.

    So after any error or interrupt it describes the last sample or pack that was completed.
    """

    counters: PackCounters
    buffer: PackBuffer
    """Samples that were kept for the next buffer; empty if lengths are known."""
    appended: list[tuple[int, Held]]
    """Shared by all progress since the last buffer was grouped; only ``new`` counts."""
    packs: Sequence[Group] = ()
    """Packs to deliver: all of them if lengths are known, else those of the last buffer."""
    num_delivered: int = 0
    """Of ``packs``."""
    held: Mapping[int, Held] = {}
    """The samples of ``buffer`` and ``packs`` by position, if they were read already."""
    num_new: int = 0
    num_read: int = 0
    is_last: bool = False
    """Whether no packs follow ``packs``."""

    @property
    def new(self) -> Sequence[tuple[int, Held]]:
        """Samples read since the last buffer was grouped."""
        return self.appended[: self.num_new]


class PackIterator(ABC):
    """The packs of one process in an epoch; after an error, `next` tries the same pack again."""

    def __init__(self, reader: SampleReader, progress: Progress) -> None:
        self._reader, self._progress = reader, progress
        self._has_ended = False

    @property
    def counters(self) -> PackCounters:
        """The counts so far."""
        return self._progress.counters

    def __iter__(self) -> PackIterator:
        return self

    def __next__(self) -> list[Any]:
        while (progress := self._progress).num_delivered == len(progress.packs):
            if progress.is_last:
                self._end()
                raise StopIteration
            self._refill()
        group, counters = progress.packs[progress.num_delivered], progress.counters.copy()
        members = self._members(group, counters)
        sizes = [(position, sizes[0]) for position, (_, sizes) in members]
        counters.emit([(sizes, group.single_long)])
        pack = [sample for _, (sample, _) in members]
        self._progress = progress._replace(
            counters=counters, num_delivered=progress.num_delivered + 1
        )
        return pack

    def _end(self) -> None:
        if not self._has_ended:
            self.counters.log_telemetry()
        self._has_ended = True

    def _read(self, samples: Samples, position: int) -> tuple[Any, Sizes | InvalidDocument]:
        """A sample and its sizes, or what is wrong with it."""
        sample = None
        try:
            sample = samples.fetch(position)
            return sample, () if sample is End.OF_SAMPLES else self._reader.sizes(sample)
        except InvalidDocument as problem:
            return sample, problem

    def state_dict(self) -> dict[str, Any]:
        """Where the last delivered pack ends, and the counts, as JSON."""
        return {"place": self._place(), **self.counters.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the packs of a state that `state_dict` returned."""
        self.counters.load_state_dict(state)
        self._load_place(state["place"])

    def begin(self) -> None:
        """Count what is known when an epoch starts; not called when a state is loaded."""
        self.counters.add("input", self.pending())

    @abstractmethod
    def pending(self) -> Iterator[tuple[int, int]]:
        """Positions and tokens of samples that are counted as input and not delivered yet."""

    @abstractmethod
    def _refill(self) -> None:
        """Replace the delivered packs by the next ones, which may be none."""

    @abstractmethod
    def _members(self, group: Group, counters: PackCounters) -> list[tuple[int, Held]]:
        """The samples of a pack; malformed ones are left out and counted."""

    @abstractmethod
    def _place(self) -> dict[str, Any]: ...

    @abstractmethod
    def _load_place(self, place: Mapping[str, Any]) -> None: ...


class PlannedPacks(PackIterator):
    """Packs of known lengths; each of n workers delivers every n-th pack."""

    def __init__(
        self,
        schedule: Schedule,
        worker: Share,
        open_samples: Callable[[Collection[int]], Samples],
        reader: SampleReader,
        progress: Progress,
    ) -> None:
        packs = schedule.packs[worker.index :: worker.count]
        super().__init__(reader, progress._replace(packs=packs, is_last=True))
        self._sizes = schedule.sizes
        self._dropped = schedule.dropped if worker.index == 0 else []
        self._open_samples = open_samples
        self._samples: Samples | None = None

    def begin(self) -> None:
        """Count everything in the schedule as input, and what is in no pack as dropped."""
        super().begin()
        for reason, position in self._dropped:
            tokens = self._tokens(position)
            self.counters.add_sample("input", position, tokens)
            self.counters.drop(reason, position, tokens)

    def skip(self, number: int) -> None:
        """Count the next packs as delivered without reading them."""
        progress, counters = self._progress, self.counters.copy()
        end = min(progress.num_delivered + number, len(progress.packs))
        skipped = progress.packs[progress.num_delivered : end]
        counters.emit((self._group_sizes(group), group.single_long) for group in skipped)
        self._progress = progress._replace(counters=counters, num_delivered=end)

    def pending(self) -> Iterator[tuple[int, int]]:
        """Positions and tokens of the samples in packs that are not delivered yet."""
        for group in self._progress.packs[self._progress.num_delivered :]:
            yield from self._group_sizes(group)

    def read(self, number: int, counters: PackCounters) -> list[Any]:
        """The samples of a pack by its number, without delivering it."""
        return [sample for _, (sample, _) in self._members(self._progress.packs[number], counters)]

    def _refill(self) -> None:
        """Do nothing: all packs are known."""

    def _members(self, group: Group, counters: PackCounters) -> list[tuple[int, Held]]:
        samples = self._opened()
        kept = []
        for position in group.positions:
            sample, sizes = self._read(samples, position)
            if isinstance(sizes, InvalidDocument):
                counters.drop_bad(position, self._tokens(position), sizes)
                continue
            self._require_planned(position, sample, sizes)
            kept.append((position, (sample, sizes)))
        if not kept:
            raise InvalidDocument(
                f"sample {group.positions[-1]} was skipped as malformed and its pack holds no "
                "other, but the number of packs must be as planned: other ranks, len() and a "
                "resumed run depend on it; remove it from the dataset, or pack without lengths"
            )
        return kept

    def _opened(self) -> Samples:
        if self._samples is None:
            self._samples = self._open_samples({position for position, _ in self.pending()})
        if (number := self._progress.num_delivered) > 0:  # not earlier: a failed pack is read again
            self._samples.forget(self._progress.packs[number - 1].positions)
        return self._samples

    def _require_planned(self, position: int, sample: object, sizes: Sizes) -> None:
        if sample is End.OF_SAMPLES:
            raise InvalidLengths(
                f"the dataset ends before sample {position} but there are {len(self._sizes)} "
                "lengths; give one length for each sample"
            )
        if list(sizes) != (planned := self._sizes[position].tolist()):
            raise InvalidLengths(
                f"sample {position} measures {list(sizes)} {self._reader.names} but the packs "
                f"were planned with {planned}; give the actual lengths of the samples"
            )

    def _end(self) -> None:
        if self._opened().fetch(len(self._sizes)) is not End.OF_SAMPLES:
            raise InvalidLengths(
                f"there are {len(self._sizes)} lengths but the dataset has more samples; give one "
                "length for each sample"
            )
        super()._end()

    def _tokens(self, position: int) -> int:
        return int(self._sizes[position, 0])

    def _group_sizes(self, group: Group) -> Iterator[tuple[int, int]]:
        return ((position, self._tokens(position)) for position in group.positions)

    def _place(self) -> dict[str, Any]:
        return {"delivered": self._progress.num_delivered}

    def _load_place(self, place: Mapping[str, Any]) -> None:
        most = len(self._progress.packs)
        delivered = read_count("delivered", place.get("delivered"), most)
        self._progress = self._progress._replace(num_delivered=delivered)


class BufferedPacks(PackIterator):
    """Packs of samples whose lengths are unknown until they are read; holds one buffer of them."""

    def __init__(
        self,
        samples: Samples,
        share: Share,
        rules: PackRules,
        reader: SampleReader,
        progress: Progress,
    ) -> None:
        super().__init__(reader, progress)
        self._samples, self._share, self._rules = samples, share, rules

    def pending(self) -> Iterator[tuple[int, int]]:
        """Positions and tokens of samples that were read and not delivered yet."""
        progress = self._progress
        positions = progress.buffer.positions.tolist()
        for group in progress.packs[progress.num_delivered :]:
            positions += group.positions
        waiting = [*((position, progress.held[position]) for position in positions), *progress.new]
        return ((position, sizes[0]) for position, (_, sizes) in waiting)

    def _members(self, group: Group, counters: PackCounters) -> list[tuple[int, Held]]:
        return [(position, self._progress.held[position]) for position in group.positions]

    def _refill(self) -> None:
        progress = self._progress
        if progress.packs:  # release the samples that were delivered
            kept = {
                position: progress.held[position] for position in progress.buffer.positions.tolist()
            }
            self._progress = progress._replace(packs=(), num_delivered=0, held=kept)
        room = progress.buffer.room
        while self._progress.num_new < room and self._read_next():
            pass
        self._progress = self._grouped(self._progress, is_last=self._progress.num_new < room)

    def _read_next(self) -> bool:
        """Read a sample into the buffer, or count why it is left out; False if there is none."""
        progress = self._progress
        position = self._share.number(progress.num_read)
        sample, sizes = self._read(self._samples, position)
        if sample is End.OF_SAMPLES:
            return False
        counters, num_new = progress.counters.copy(), progress.num_new
        tokens = length_or_zero(sample) if isinstance(sizes, InvalidDocument) else sizes[0]
        counters.add_sample("input", position, tokens)
        if isinstance(sizes, InvalidDocument):
            counters.drop_bad(position, tokens, sizes)
        elif (reason := self._rules.drop_reason(sizes)) is not None:
            counters.drop(reason, position, tokens)
        else:
            del progress.appended[num_new:]  # a sample that an interrupt left uncounted
            progress.appended.append((position, (sample, sizes)))
            num_new += 1
        self._progress = Progress(
            counters,
            progress.buffer,
            progress.appended,
            held=progress.held,
            num_new=num_new,
            num_read=progress.num_read + 1,
        )
        return True

    def _grouped(self, progress: Progress, *, is_last: bool) -> Progress:
        """The progress with new samples in the buffer, and the groups that leave it as packs."""
        buffer, counters = replace(progress.buffer), progress.counters.copy()
        held = {**progress.held, **dict(progress.new)}
        positions = np.array([position for position, _ in progress.new], dtype=np.int64)
        buffer.add(positions, np.array([sizes for _, (_, sizes) in progress.new], dtype=np.int64))
        if is_last:
            packs, underfilled = buffer.finish()
            for position in () if underfilled is None else underfilled.positions:
                counters.drop("drop_last", position, held[position][1][0])
        else:
            packs = buffer.take_groups()
        return Progress(
            counters, buffer, [], packs, held=held, num_read=progress.num_read, is_last=is_last
        )

    def _place(self) -> dict[str, Any]:
        """Positions of the samples that are held, and how many samples were read."""
        progress, buffer = self._progress, self._progress.buffer
        kept = np.column_stack([buffer.positions, buffer.carries, buffer.sizes]).tolist()
        return {
            "read": progress.num_read,
            "finished": progress.is_last,
            "waiting": [*kept, *([position, 0, *sizes] for position, (_, sizes) in progress.new)],
            "ready": [
                [int(group.single_long), group.tokens, *group.positions]
                for group in progress.packs[progress.num_delivered :]
            ],
        }

    def _load_place(self, place: Mapping[str, Any]) -> None:
        """Read the samples that the state holds, and no others, again."""
        num_read = read_count("read", place.get("read"))
        if (counted := self.counters.num_samples("input")) != num_read:
            raise InvalidState(
                f"the state has read {num_read} samples but counted {counted}; use a state as "
                "state_dict() returned it"
            )
        is_last = read_flag("finished", place.get("finished"))
        waiting = read_rows("waiting", place.get("waiting"), 2 + len(self._rules.measures))
        ready = read_rows("ready", place.get("ready"))
        if any(len(row) < 3 for row in ready):
            raise InvalidState("the state's ready packs must hold a flag, tokens and positions")
        positions = [row[0] for row in waiting] + [at for row in ready for at in row[2:]]
        held = self._read_all_again(positions, self._share.number(num_read))
        self._progress = self._progress._replace(
            buffer=self._saved_buffer(waiting, held),
            packs=[_saved_pack(row, held) for row in ready],
            held=held,
            num_read=num_read,
            is_last=is_last,
        )

    def _saved_buffer(self, waiting: list[list[int]], held: Mapping[int, Held]) -> PackBuffer:
        for position, num_carries, *sizes in waiting:
            read_count("carries", num_carries, MOST_CARRIES)
            _require_same(f"sample {position}", sizes, held[position][1])
        rows = np.array(waiting, dtype=np.int64).reshape(-1, 2 + len(self._rules.measures))
        return PackBuffer(self._rules, positions=rows[:, 0], sizes=rows[:, 2:], carries=rows[:, 1])

    def _read_all_again(self, positions: list[Any], end: int) -> dict[int, Held]:
        owned = [p for p in positions if self._share.owns(read_count("position", p, end - 1))]
        if len(set(owned)) < len(positions):
            raise InvalidState("the state holds a sample twice, or one of another rank or worker")
        # Sorted, because datasets without random access are read forward.
        return {position: self._read_again(position) for position in sorted(positions)}

    def _read_again(self, position: int) -> Held:
        sample, sizes = self._read(self._samples, position)
        if isinstance(sizes, InvalidDocument):
            raise SourceChanged(
                f"sample {position} {sizes}, but the state holds it; continue with the same dataset"
            ) from sizes
        if sample is End.OF_SAMPLES:
            raise SourceChanged(
                f"the dataset ends before sample {position}, which the state holds; continue with "
                "the same dataset"
            )
        return sample, sizes


def _saved_pack(row: list[int], held: Mapping[int, Held]) -> Group:
    single_long, tokens, *positions = row
    found = sum(held[position][1][0] for position in positions)
    _require_same(f"the pack of samples {positions}", [tokens], (found,))
    return Group(positions=tuple(positions), tokens=tokens, single_long=bool(single_long))


def _require_same(what: str, saved: list[int], found: Sizes) -> None:
    if list(saved) != list(found):
        raise SourceChanged(
            f"{what} measures {list(found)} but {list(saved)} in the state; continue with the "
            "same dataset"
        )
