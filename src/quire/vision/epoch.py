"""One epoch of a packed dataset on one rank: its lengths, its plan, its packs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from quire.errors import InvalidOption
from quire.plan.lengths import IntArray
from quire.vision.counters import PackCounters
from quire.vision.grouping import GROUPING_VERSION, PackBuffer
from quire.vision.iterator import BufferedPacks, PackIterator, PlannedPacks, Progress
from quire.vision.lengths import KnownLengths, known_sizes
from quire.vision.options import PackRules, VisionPackingOptions
from quire.vision.plan import (
    SPLITTING_VERSION,
    EpochPlan,
    PackSizes,
    PlanCache,
    Schedule,
    WholeEpoch,
    packs_whole_epoch,
    plan_epoch,
)
from quire.vision.samples import MEASURES, SampleReader
from quire.vision.source import has_random_access, open_samples, shards_itself
from quire.vision.telemetry import PackingTelemetry
from quire.vision.workers import Share


@dataclass(frozen=True, kw_only=True, eq=False)
class Epoch:
    """One epoch on one rank, with everything that determines its packs.

    The dataset must be at that epoch already.
    """

    number: int
    dataset: Any
    options: VisionPackingOptions
    rules: PackRules
    reader: SampleReader
    rank: Share
    lengths: KnownLengths | None = None
    num_packs: int | None = None
    """The number of packs of every epoch if it is fixed; None: as many as the samples fill."""
    plans: PlanCache = field(default_factory=PlanCache)
    """Shared by all epochs."""

    @cached_property
    def sizes(self) -> IntArray | None:
        """The sizes of all samples, if they are known."""
        return known_sizes(self.dataset, self.lengths, self.reader)

    @cached_property
    def whole(self) -> WholeEpoch | None:
        """How the epoch is grouped as a whole; None if it is grouped buffer by buffer."""
        scope, access = self.options.packing_scope, has_random_access(self.dataset)
        if not packs_whole_epoch(scope, self.rules, self.sizes, access):
            return None
        return WholeEpoch(seed=self.options.seed, epoch=self.number)

    @cached_property
    def plan(self) -> EpochPlan | None:
        """The groups of the rank, if lengths are known."""
        sizes, whole = self.sizes, self.whole
        if sizes is None:
            return None

        def make() -> EpochPlan:
            return plan_epoch(sizes, self.rank, self.rules, whole)

        # Planning buffer by buffer takes less time than computing the key.
        return self.plans.get((whole, self._sizes_hash), make) if whole else make()

    @cached_property
    def schedule(self) -> Schedule | None:
        """All packs of the rank, if lengths are known."""
        return None if self.plan is None else self.plan.schedule(self.num_packs)

    def open_packs(self, worker: Share) -> PackIterator:
        """The packs of a worker, from the first one on."""
        if self.schedule is None:
            samples, share, progress = (
                open_samples(self.dataset),
                self.share(worker),
                self._start(worker),
            )
            return BufferedPacks(samples, share, self.rules, self.reader, progress)
        if worker.count > 1 and shards_itself(self.dataset):
            raise InvalidOption(
                f"lengths= covers the whole dataset, but a {type(self.dataset).__name__} splits "
                f"itself among {worker.count} workers; use no workers, or no lengths"
            )
        return self.planned_packs(self.schedule, worker)

    def planned_packs(
        self, schedule: Schedule, worker: Share | None = None, *, silent: bool = False
    ) -> PlannedPacks:
        """A worker's part of the scheduled packs, or all of them."""
        return PlannedPacks(
            schedule,
            worker or Share(),
            partial(open_samples, self.dataset),
            self.reader,
            self._start(worker, silent=silent),
        )

    def planned_telemetry(self) -> PackingTelemetry | None:
        """What the rank will have delivered at the end of the epoch, if lengths are known."""
        if self.schedule is None:
            return None
        packs = self.planned_packs(self.schedule, silent=True)
        packs.begin()
        packs.skip(len(self.schedule.packs))
        return packs.counters.telemetry()

    def pack_sizes(self) -> PackSizes | None:
        """The samples of all packs with their sizes, if lengths are known."""
        if self.schedule is None:
            return None
        packs = self.schedule.packs
        positions = np.array([n for pack in packs for n in pack.positions], dtype=np.int64)
        return PackSizes(
            per_pack=np.array([len(pack.positions) for pack in packs], dtype=np.int64),
            positions=positions,
            sizes={name: column[positions] for name, column in self._known_measures().items()},
            limits=self.rules.named_limits,
            num_single_long=sum(pack.single_long for pack in packs),
        )

    def _known_measures(self) -> dict[str, IntArray]:
        """Tokens of all samples, and images and patches if they are limited or given with them."""
        reader = replace(self.reader, names=tuple(MEASURES))
        try:
            sizes = known_sizes(self.dataset, self.lengths, reader)
        except InvalidOption:  # lengths= may name only what is limited
            sizes = None
        if sizes is None:
            reader, sizes = self.reader, self.sizes
        return {} if sizes is None else dict(zip(reader.names, sizes.T, strict=True))

    def share(self, worker: Share) -> Share:
        """A worker's part of the input: of its rank's part, every n-th sample."""
        return self.rank if shards_itself(self.dataset) else self.rank.divided(worker)

    def counters(self, worker: Share | None = None, *, silent: bool = False) -> PackCounters:
        """Counters at zero."""
        return PackCounters(
            self.rules.max_length,
            epoch=self.number,
            max_bad_records=self.options.max_bad_records,
            source_of=getattr(self.dataset, "source_of", None),
            worker=worker,
            silent=silent,
        )

    def _start(self, worker: Share | None, *, silent: bool = False) -> Progress:
        return Progress(self.counters(worker, silent=silent), PackBuffer(self.rules), [])

    @cached_property
    def _sizes_hash(self) -> str | None:  # cached: a loader may ask for the state after every pack
        if self.sizes is None:
            return None
        plain = np.ascontiguousarray(self.sizes, dtype="<i8").tobytes()
        return hashlib.sha256(plain).hexdigest()[:32]

    def terms(self) -> dict[str, Any]:
        """What must be the same when a state is continued."""
        options, dataset, whole = self.options, self.dataset, self.whole
        names = [part.name for part in fields(options) if part.name.startswith("packing_")]
        # Not the private one of `datasets`: it is random if a function could not be hashed.
        fingerprint = getattr(dataset, "fingerprint", None)
        is_split = self.schedule is not None and self.schedule.is_split
        return {
            **{name: getattr(options, name) for name in names},
            "packing_length": self.rules.max_length,
            "packing_scope": "buffer" if whole is None else "epoch",
            "seed": None if whole is None else whole.seed,
            "plan": None if self.plan is None else self.plan.fingerprint,
            "lengthening": SPLITTING_VERSION if is_split else None,
            "matching": GROUPING_VERSION,
            "world_size": self.rank.count,
            "num_packs": self.num_packs,
            "samples": len(dataset) if has_random_access(dataset) else None,
            "lengths": self._sizes_hash,
            "dataset": fingerprint if isinstance(fingerprint, str) else None,
        }
