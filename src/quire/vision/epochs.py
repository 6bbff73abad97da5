"""What belongs to one epoch of a packed dataset: its lengths, its schedule, its packs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeAlias

from quire.errors import InvalidOption
from quire.plan.lengths import IntArray
from quire.vision.budgets import Budgets
from quire.vision.delivery import Delivery
from quire.vision.lengths import KnownLengths, known_sizes, sizes_hash
from quire.vision.matching import MATCHING_VERSION
from quire.vision.options import VisionPackingOptions
from quire.vision.planned import PlannedPacks
from quire.vision.plans import Plans
from quire.vision.ranks import Share
from quire.vision.reading import deals_to_workers, has_positions, open_samples
from quire.vision.samples import SampleReader
from quire.vision.schedule import LENGTHENING_VERSION, EpochPlan, Schedule, plan_epoch
from quire.vision.scope import WholeEpoch, is_whole
from quire.vision.streamed import StreamedPacks
from quire.vision.telemetry import PackingTelemetry
from quire.vision.torch_base import worker_share

Packs: TypeAlias = PlannedPacks | StreamedPacks


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """Everything that decides the packs of a rank, in every epoch."""

    dataset: Any
    options: VisionPackingOptions
    budgets: Budgets
    reader: SampleReader
    rank: Share
    lengths: KnownLengths | None = None
    num_packs: int | None = None
    """Packs of every epoch, where they must be as many; None: as many as samples make."""
    plans: Plans = field(default_factory=Plans)


class Epoch:
    """One epoch on one rank; the dataset stands at that epoch already."""

    def __init__(self, packing: Packing, number: int) -> None:
        self._packing = packing
        self.number = number

    @cached_property
    def sizes(self) -> IntArray | None:
        """The sizes of all samples, if they are known."""
        packing = self._packing
        return known_sizes(packing.dataset, packing.lengths, packing.reader)

    @cached_property
    def whole(self) -> WholeEpoch | None:
        """How the epoch is grouped as a whole; None where it is grouped buffer by buffer."""
        packing, sizes = self._packing, self.sizes
        by_number = has_positions(packing.dataset)
        if not is_whole(packing.options.packing_scope, packing.budgets, sizes, by_number):
            return None
        return WholeEpoch(seed=packing.options.seed, epoch=self.number)

    @cached_property
    def plan(self) -> EpochPlan | None:
        """The groups of the rank, if they can be planned."""
        packing, sizes, whole = self._packing, self.sizes, self.whole
        if sizes is None:
            return None

        def plan() -> EpochPlan:
            return plan_epoch(sizes, packing.rank, packing.options, packing.budgets, whole)

        # Planning by the buffer takes less time than computing the key.
        return packing.plans.get((whole, self._lengths_hash), plan) if whole else plan()

    @cached_property
    def schedule(self) -> Schedule | None:
        """All packs of the rank, if they can be planned."""
        return None if self.plan is None else self.plan.schedule(self._packing.num_packs)

    @property
    def reader(self) -> SampleReader:
        """What measures samples."""
        return self._packing.reader

    def open_packs(self) -> Packs:
        """The packs of this process, from the first one on."""
        packing, delivery = self._packing, self.delivery()
        reader, dataset = packing.reader, packing.dataset
        if self.schedule is None:
            samples, share = open_samples(dataset), self.share()
            return StreamedPacks(samples, share, packing.options, packing.budgets, reader, delivery)
        workers = worker_share()
        if workers.count > 1 and deals_to_workers(dataset):
            raise InvalidOption(
                f"lengths= gives the packs of the whole dataset, but a {type(dataset).__name__} "
                f"deals itself to {workers.count} workers; use no workers, or no lengths"
            )
        return PlannedPacks(
            self.schedule, workers, lambda wanted: open_samples(dataset, wanted), reader, delivery
        )

    def share(self) -> Share:
        """This process's part of the input: its rank's, and of that its worker's."""
        rank = self._packing.rank
        if deals_to_workers(self._packing.dataset):
            return rank
        return rank.divided(worker_share())

    def delivery(self, *, silent: bool = False) -> Delivery:
        """Empty books."""
        source_of = getattr(self._packing.dataset, "source_of", None)
        bad = self._packing.options.max_bad_records
        return Delivery(self._packing.budgets, bad, source_of, silent=silent)

    def planned_telemetry(self, schedule: Schedule) -> PackingTelemetry:
        """What the rank will have delivered at the epoch's end."""
        delivery = self.delivery(silent=True)
        for group in schedule.packs:
            members = [(at, int(schedule.sizes[at, 0])) for at in group.positions]
            for position, tokens in members:
                delivery.enter(position, tokens)
            delivery.emit(members, single_long=group.single_long)
        for reason, position in schedule.dropped:
            tokens = int(schedule.sizes[position, 0])
            delivery.enter(position, tokens)
            delivery.drop(reason, position, tokens)
        return delivery.telemetry(self.number)

    @cached_property
    def _lengths_hash(self) -> str | None:  # once: a loader asks for the state after every pack
        return None if self.sizes is None else sizes_hash(self.sizes)

    def terms(self) -> dict[str, Any]:
        """What must be the same when a state is continued."""
        packing, dataset, whole = self._packing, self._packing.dataset, self.whole
        schedule = self.schedule
        names = [p.name for p in fields(packing.options) if p.name.startswith("packing_")]
        # Not the private one of `datasets`: it is random where a function could not be hashed.
        found = getattr(dataset, "fingerprint", None)
        return {
            **{name: getattr(packing.options, name) for name in names},
            "packing_length": packing.budgets.tokens,
            "packing_scope": "buffer" if whole is None else "epoch",
            "seed": None if whole is None else whole.seed,
            "plan": None if self.plan is None else self.plan.fingerprint,
            "lengthening": LENGTHENING_VERSION if schedule and schedule.lengthened else None,
            "matching": MATCHING_VERSION,
            "world_size": packing.rank.count,
            "num_packs": packing.num_packs,
            "samples": len(dataset) if has_positions(dataset) else None,
            "lengths": self._lengths_hash,
            "dataset": found if isinstance(found, str) else None,
        }


class LoggedPacks:
    """The iterator that loaders get: the packs, and a line in the log after the last one."""

    def __init__(self, packs: Packs, log: Callable[[], None]) -> None:
        self._packs, self._log, self._logged = packs, log, False

    def __iter__(self) -> LoggedPacks:
        return self

    def __next__(self) -> list[Any]:
        try:
            return next(self._packs)
        except StopIteration:
            if not self._logged:
                self._log()
            self._logged = True
            raise


class UnopenedPacks:
    """An iterator that raises what happened when the packs were opened."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __iter__(self) -> UnopenedPacks:
        return self

    def __next__(self) -> list[Any]:
        raise self._error
