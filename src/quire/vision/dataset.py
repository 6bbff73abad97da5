"""`PackedVLDataset`: vision-language samples in packs, as lists of samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from types import NoneType
from typing import Any, NoReturn

from quire.errors import InvalidOption, InvalidState
from quire.ledger import Ledger
from quire.options import require_integer, suggest_keywords
from quire.vision.adapters import IterableStylePacks, MapStylePacks
from quire.vision.epoch import Epoch
from quire.vision.iterator import PackIterator, PlannedPacks
from quire.vision.lengths import KnownLengths
from quire.vision.options import (
    TRAINER_OPTIONS,
    Scope,
    VisionPackingOptions,
    prepare_template,
)
from quire.vision.plan import PackCounts, PackSizes
from quire.vision.samples import Measure, SampleReader, merge_size, token_id
from quire.vision.source import has_random_access, require_readable
from quire.vision.state import (
    SEAL,
    State,
    opened,
    read_count,
    require_same_share,
    require_same_terms,
)
from quire.vision.telemetry import PackingTelemetry
from quire.vision.workers import IterableBase, Share, WorkerUpdates
from quire.worker_memory import OneUse, worker_info


class PackedVLDataset(IterableBase):
    """One rank's packs: lists of unchanged samples with at most ``packing_length`` tokens together.

    ``dataset`` yields encoded samples, by number or in order. If all lengths are known
    (``lengths``, or a column ``length``), `len` is exact and every rank has the same number of
    packs; packs with limits besides tokens are then planned for the whole epoch at once
    (``packing_scope``). Iterating starts the epoch over, or continues from a loaded state.
    ``measure`` returns the tokens, images or patches of a sample that has no such fields.

    >>> samples = [{"length": n} for n in (30, 30, 20, 60, 50, 10)]
    >>> packed = PackedVLDataset(samples, packing_length=80, packing_drop_last=False)
    >>> [[sample["length"] for sample in pack] for pack in packed]
    [[30, 50], [30, 10], [20, 60]]
    """

    @suggest_keywords
    def __init__(
        self,
        dataset: Any,  # noqa: ANN401 - any kind of dataset
        *,
        template: Any = None,  # noqa: ANN401 - ms-swift's, or an object with the same attributes
        packing_length: int | None = None,
        packing_buffer: int = 512,
        packing_scope: Scope = "auto",
        packing_min_fill_ratio: float = 0.65,
        packing_drop_last: bool = True,
        packing_allow_single_long: bool = True,
        packing_max_images: int | None = None,
        packing_max_patches: int | None = None,
        packing_max_documents: int | None = None,
        global_max_length: int | None = None,
        max_bad_records: int = 0,
        seed: int = 0,
        lengths: KnownLengths | None = None,
        measure: Measure | None = None,
        image_token_id: int | None = None,
        video_token_id: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        given = locals()
        names = [part.name for part in fields(VisionPackingOptions) if part.name in given]
        self.options = VisionPackingOptions(packing=True, **{name: given[name] for name in names})
        require_readable(dataset)
        self.dataset = dataset
        rules = self.options.rules(template)
        self._epoch = Epoch(
            # A fused dataset may already be at a later epoch: its packs begin there.
            number=dataset.epoch if hasattr(dataset, "fused_sizes") else 0,
            dataset=dataset,
            options=self.options,
            rules=rules,
            reader=SampleReader(
                names=rules.measures,
                measure=measure,
                image_token_id=token_id(template, "image_token_id", image_token_id),
                video_token_id=token_id(template, "video_token_id", video_token_id),
                merge_size=merge_size(template),
            ),
            rank=Share.of_rank(rank, world_size),
            lengths=lengths,
        )
        self._packs: PackIterator | None = None
        self._skip = 0
        self._resume: State | None = None
        self._updates, self._one_use = WorkerUpdates(), OneUse()
        if template is not None:
            prepare_template(template, self.options)

    def __repr__(self) -> str:
        size = f"{len(self.dataset):,} samples" if hasattr(self.dataset, "__len__") else "samples"
        length, share = self._epoch.rules.max_length, self._epoch.rank
        return (
            f"PackedVLDataset({size}, packs of {length:,}, rank {share.index} of {share.count}, "
            f"epoch {self._epoch.number})"
        )

    @classmethod
    def from_options(
        cls,
        dataset: Any,  # noqa: ANN401
        options: VisionPackingOptions,
        **others: Any,  # noqa: ANN401 - the keywords that are not options
    ) -> PackedVLDataset:
        """The dataset with these options; ``others`` are template, lengths, rank and so on."""
        names = [part.name for part in fields(options) if part.name not in TRAINER_OPTIONS]
        return cls(dataset, **{name: getattr(options, name) for name in names}, **others)

    @property
    def packing_length(self) -> int:
        """The most tokens in a pack."""
        return self._epoch.rules.max_length

    @property
    def lengths_needed(self) -> str:
        """What the caller must provide so that the number of packs is known."""
        return self._epoch.rules.lengths_needed

    @property
    def rank(self) -> tuple[int, int]:
        """The rank that these packs belong to, and the world size."""
        return self._epoch.rank.index, self._epoch.rank.count

    @property
    def epoch(self) -> int:
        """The epoch whose packs are delivered."""
        return self._epoch.number

    def set_epoch(self, epoch: int) -> None:
        """Forward the epoch to the dataset first, then pack its new order from the start."""
        self._move_to(replace(self._epoch, number=require_integer("epoch", epoch, 0)))
        # A trainer sets the epoch again after it has loaded a state of it: the state is kept.
        is_kept = self._resume is not None and self._resume["epoch"] == epoch
        if not is_kept or self._one_use.is_over():
            self._resume = None
        self._update_workers()

    def fix_num_packs(self, number: int | None) -> None:
        """Deliver this many packs in every epoch; None: as many as the samples fill.

        Trainers count the packs of the first epoch and expect the same number in all others. An
        epoch with fewer keeps the group it would drop, then splits its largest packs.
        """
        self._move_to(replace(self._epoch, num_packs=number))
        self._update_workers()

    def skip_packs(self, number: int) -> None:
        """Start the next iteration after this many of the rank's packs, without reading them.

        Workers share the skipped packs as they share packs; lengths must be known.
        """
        len(self)  # raises if lengths are not known
        self._skip = require_integer("packs to skip", number, 0)
        self._update_workers()

    def map_style(self) -> MapStylePacks:
        """The packs by number, for a trainer whose sampler assigns them to ranks (ms-swift's)."""
        return MapStylePacks(self)

    def iterable_style(self) -> IterableStylePacks:
        """The packs in order, without `len`, for a trainer that sends each pack to one rank."""
        return IterableStylePacks(self)

    def current_epoch(self) -> Epoch:
        """The epoch whose packs are delivered; a persistent worker first applies any update."""
        if (update := self._updates.receive()) is not None:
            fixed = None if update.num_packs < 0 else update.num_packs
            self._move_to(replace(self._epoch, number=update.epoch, num_packs=fixed))
            self._resume, self._skip = None, update.skip
        if hasattr(self.dataset, "fused_sizes") and self.dataset.epoch != self.epoch:
            raise InvalidOption(
                f"the fused dataset is at epoch {self.dataset.epoch} but its packs are at "
                f"{self.epoch}; call set_epoch only on the packed dataset, and give each packed "
                "dataset its own FusionDataset"
            )
        return self._epoch

    def _update_workers(self) -> None:
        self._one_use.renew()
        self._updates.send(
            epoch=self.epoch,
            skip=self._skip,
            num_packs=self._epoch.num_packs,
            has_state=self._resume is not None,
        )

    def _move_to(self, epoch: Epoch) -> None:
        self._set_dataset_epoch(epoch.number)
        self._epoch, self._packs, self._skip = epoch, None, 0

    def _set_dataset_epoch(self, epoch: int) -> None:
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __len__(self) -> int:
        schedule = self._epoch.schedule
        if schedule is None:
            raise self._unknown_number()
        return len(schedule.packs)

    def pack_counts(self) -> PackCounts:
        """How many packs the epoch has as planned, and how many if no group were dropped."""
        plan = self._epoch.plan
        if plan is None:
            raise self._unknown_number()
        return plan.counts

    def pack_sizes(self) -> PackSizes:
        """The samples of all planned packs, with their tokens, images and patches."""
        sizes = self._epoch.pack_sizes()
        if sizes is None:
            raise self._unknown_number()
        return sizes

    def _unknown_number(self) -> TypeError:
        return TypeError(
            "the number of packs is not known before samples are read; give "
            f"{self.lengths_needed}, or call length_hint()"
        )

    def length_hint(self) -> int | None:
        """The approximate number of packs; None if lengths are unknown and no pack was made yet."""
        if self._epoch.schedule is not None:
            return len(self)
        if self._packs is None or not has_random_access(self.dataset):
            return None
        done = self.telemetry()
        seen = done.ledger.documents.input - done.ledger.documents.pending
        samples = len(self.dataset) / self._epoch.rank.count
        return round(done.num_packs * samples / seen) if seen else None

    def __iter__(self) -> Iterator[list[Any]]:
        try:
            return self._opened()
        except Exception as error:
            if worker_info() is None:
                raise
            # torch loses what a persistent worker raises before `next`.
            return iter(partial(_raise, error), None)

    def _opened(self) -> Iterator[list[Any]]:
        epoch, worker = self.current_epoch(), Share.of_worker()
        packs = epoch.open_packs(worker)
        if (self._resume is not None or self._skip) and self._one_use.is_over():
            self._resume, self._skip = None, 0
        self._start(packs, epoch.share(worker))
        if self._skip and isinstance(packs, PlannedPacks):
            packs.skip(worker.count_below(self._skip))
        # Only now, so that a caller that retries after an error continues from the same state.
        self._packs, self._resume, self._skip = packs, None, 0
        # Without the methods of `packs`: torchdata would load states into it, not into the dataset.
        return iter(packs.__next__, None)

    def _start(self, packs: PackIterator, share: Share) -> None:
        """Begin the epoch, or continue from the loaded state, which is discarded if invalid."""
        resume = self._resume
        if resume is None or resume["place"] is None:
            packs.begin()
            return
        require_same_share(resume, share)  # loaded in the main process, it may be used by a worker
        try:
            packs.load_state_dict(resume)
        except InvalidState:
            self._resume = None
            raise

    def telemetry(self) -> PackingTelemetry:
        """What this process has delivered in this epoch so far."""
        if self._packs is None:
            return self._epoch.counters().telemetry()
        return self._packs.counters.telemetry(self._packs.pending())

    def planned_telemetry(self) -> PackingTelemetry | None:
        """What this rank delivers in the whole epoch, over all workers; None if not known."""
        return self._epoch.planned_telemetry()

    def source_ledgers(self) -> Mapping[str, Ledger]:
        """A ledger for each fused dataset, by its name."""
        if self._packs is None:
            return {}
        return self._packs.counters.source_ledgers(self._packs.pending())

    def state_dict(self) -> State:
        """Where the last delivered pack ends, as JSON; it holds positions, not samples.

        It describes the process that iterates: with a loader's workers use a loader that collects
        their states (torchdata's `StatefulDataLoader`), or count packs and use `skip_packs`.
        """
        if self._resume is not None:
            return dict(self._resume)
        share = self._epoch.share(Share.of_worker())
        unstarted: State = {"place": None, "account": [], "packs": {}}
        return SEAL.sealed(
            {
                "epoch": self.epoch,
                "terms": self._epoch.terms(),
                "share": [share.index, share.count],
                **(unstarted if self._packs is None else self._packs.state_dict()),
            }
        )

    def load_state_dict(self, state: object) -> None:
        """Continue from a state, in its epoch; an error if dataset, options or ranks differ."""
        plain = opened(state)
        epoch, before = read_count("epoch", plain["epoch"]), (self._epoch, self._packs, self._skip)
        try:
            self._move_to(replace(self._epoch, number=epoch))
            require_same_terms(plain["terms"], self._epoch.terms())
            require_same_share(plain, self._epoch.share(Share.of_worker()))
            for name, kinds in (("place", dict | NoneType), ("packs", dict)):
                if not isinstance(plain[name], kinds):
                    found = f"{plain[name]!r:.60}"
                    raise InvalidState(f"the state's {name} is {found} but must be a dict")
            self._resume = plain
            self._update_workers()
        except BaseException:  # an iteration in progress continues
            self._epoch, self._packs, self._skip = before
            self._set_dataset_epoch(self.epoch)
            raise

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_packs": None}  # a worker opens its own


def _raise(error: Exception) -> NoReturn:
    raise error
