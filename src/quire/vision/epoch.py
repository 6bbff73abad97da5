"""One epoch of a packed dataset on one rank: its lengths, its plan, its packs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from quire.errors import InvalidOption
from quire.plan.lengths import IntArray
from quire.vision.counters import PackCounters
from quire.vision.grouping import GROUPING_VERSION, PackBuffer
from quire.vision.iterator import BufferedPacks, PackIterator, PlannedPacks, Progress
from quire.vision.lengths import KnownLengths, known_sizes, sizes_hash
from quire.vision.options import PackRules, VisionPackingOptions
from quire.vision.plan import (
    SPLITTING_VERSION,
    EpochPlan,
    PlanCache,
    Schedule,
    WholeEpoch,
    packs_whole_epoch,
    plan_epoch,
)
from quire.vision.samples import SampleReader
from quire.vision.source import has_random_access, open_samples, shards_itself
from quire.vision.telemetry import PackingTelemetry
from quire.vision.workers import Share


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """Everything that determines the packs of a rank, in every epoch."""

    dataset: Any
    options: VisionPackingOptions
    rules: PackRules
    reader: SampleReader
    rank: Share
    lengths: KnownLengths | None = None
    num_packs: int | None = None
    """The number of packs of every epoch if it is fixed; None: as many as the samples fill."""
    plans: PlanCache = field(default_factory=PlanCache)


class Epoch:
    """One epoch on one rank; the dataset must be at that epoch already."""

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
        """How the epoch is grouped as a whole; None if it is grouped buffer by buffer."""
        packing, options = self._packing, self._packing.options
        access = has_random_access(packing.dataset)
        if not packs_whole_epoch(options.packing_scope, packing.rules, self.sizes, access):
            return None
        return WholeEpoch(seed=options.seed, epoch=self.number)

    @cached_property
    def plan(self) -> EpochPlan | None:
        """The groups of the rank, if lengths are known."""
        packing, sizes, whole = self._packing, self.sizes, self.whole
        if sizes is None:
            return None

        def make() -> EpochPlan:
            return plan_epoch(sizes, packing.rank, packing.rules, whole)

        # Planning buffer by buffer takes less time than computing the key.
        return packing.plans.get((whole, self._sizes_hash), make) if whole else make()

    @cached_property
    def schedule(self) -> Schedule | None:
        """All packs of the rank, if lengths are known."""
        return None if self.plan is None else self.plan.schedule(self._packing.num_packs)

    def open_packs(self) -> PackIterator:
        """The packs of this process, from the first one on."""
        packing, dataset, workers = self._packing, self._packing.dataset, Share.of_worker()
        if self.schedule is None:
            samples, share, progress = open_samples(dataset), self.share(), self._start()
            return BufferedPacks(samples, share, packing.rules, packing.reader, progress)
        if workers.count > 1 and shards_itself(dataset):
            raise InvalidOption(
                f"lengths= covers the whole dataset, but a {type(dataset).__name__} splits itself "
                f"among {workers.count} workers; use no workers, or no lengths"
            )
        return self.planned_packs(self.schedule, workers)

    def planned_packs(
        self, schedule: Schedule, share: Share | None = None, *, silent: bool = False
    ) -> PlannedPacks:
        """A share of the scheduled packs, from the first one on."""
        dataset, reader = self._packing.dataset, self._packing.reader
        return PlannedPacks(
            schedule,
            share or Share(),
            lambda wanted: open_samples(dataset, wanted),
            reader,
            self._start(silent=silent),
        )

    def planned_telemetry(self) -> PackingTelemetry | None:
        """What the rank will have delivered at the end of the epoch, if lengths are known."""
        if self.schedule is None:
            return None
        packs = self.planned_packs(self.schedule, silent=True)
        packs.begin()
        packs.skip(len(self.schedule.packs))
        return packs.counters.telemetry(self.number)

    def share(self) -> Share:
        """This process's part of the input: its rank's, and of that its worker's."""
        rank = self._packing.rank
        if shards_itself(self._packing.dataset):
            return rank
        return rank.divided(Share.of_worker())

    def counters(self, *, silent: bool = False) -> PackCounters:
        """Counters at zero."""
        source_of = getattr(self._packing.dataset, "source_of", None)
        max_bad = self._packing.options.max_bad_records
        return PackCounters(self._packing.rules.max_length, max_bad, source_of, silent=silent)

    def _start(self, *, silent: bool = False) -> Progress:
        return Progress(self.counters(silent=silent), PackBuffer(self._packing.rules))

    @cached_property
    def _sizes_hash(self) -> str | None:  # cached: a loader may ask for the state after every pack
        return None if self.sizes is None else sizes_hash(self.sizes)

    def terms(self) -> dict[str, Any]:
        """What must be the same when a state is continued."""
        packing, dataset, whole = self._packing, self._packing.dataset, self.whole
        names = [part.name for part in fields(packing.options) if part.name.startswith("packing_")]
        # Not the private one of `datasets`: it is random if a function could not be hashed.
        fingerprint = getattr(dataset, "fingerprint", None)
        is_split = self.schedule is not None and self.schedule.is_split
        return {
            **{name: getattr(packing.options, name) for name in names},
            "packing_length": packing.rules.max_length,
            "packing_scope": "buffer" if whole is None else "epoch",
            "seed": None if whole is None else whole.seed,
            "plan": None if self.plan is None else self.plan.fingerprint,
            "lengthening": SPLITTING_VERSION if is_split else None,
            "matching": GROUPING_VERSION,
            "world_size": packing.rank.count,
            "num_packs": packing.num_packs,
            "samples": len(dataset) if has_random_access(dataset) else None,
            "lengths": self._sizes_hash,
            "dataset": fingerprint if isinstance(fingerprint, str) else None,
        }
