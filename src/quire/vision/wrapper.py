"""`PackedVLDataset`: lists of samples that fill a pack together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from types import NoneType
from typing import Any

from quire.errors import InvalidOption, InvalidState
from quire.keywords import names_near_keywords
from quire.ledger import Ledger
from quire.options import require_integer
from quire.vision.budgets import Budgets
from quire.vision.dataset_styles import IterableStylePacks, MapStylePacks
from quire.vision.delivery import logger
from quire.vision.epochs import Epoch, LoggedPacks, Packing, Packs, UnopenedPacks
from quire.vision.lengths import KnownLengths
from quire.vision.options import OF_THE_TRAINER, Scope, VisionPackingOptions
from quire.vision.planned import PlannedPacks
from quire.vision.ranks import Share
from quire.vision.reading import has_positions, require_readable
from quire.vision.samples import Measure, SampleReader
from quire.vision.schedule import PackCounts
from quire.vision.state import State, opened, read_count, require_same_terms, sealed
from quire.vision.telemetry import PackingTelemetry
from quire.vision.templates import merge_size, prepare_template, token_id
from quire.vision.torch_base import IterableBase, is_worker, worker_share
from quire.vision.worker_moves import WorkerMoves
from quire.worker_memory import OneUse


class PackedVLDataset(IterableBase):
    """One rank's packs: lists of samples of at most ``packing_length`` tokens, as they came.

    ``dataset`` gives encoded samples, by number or in order. Where all lengths are known
    (``lengths``, or a column ``length``), `len` is exact and every rank has as many packs; packs
    with limits beside tokens are then planned for the whole epoch at once (``packing_scope``).
    Iterating starts the epoch anew, or goes on behind a loaded state. ``measure`` says how many
    tokens, images or patches a sample has, where it does not say so itself.

    >>> samples = [{"length": n} for n in (30, 30, 20, 60, 50, 10)]
    >>> packed = PackedVLDataset(samples, packing_length=80, packing_drop_last=False)
    >>> [[sample["length"] for sample in pack] for pack in packed]
    [[30, 50], [30, 10], [20, 60]]
    """

    @names_near_keywords
    def __init__(
        self,
        dataset: Any,  # noqa: ANN401 - anything with samples
        *,
        template: Any = None,  # noqa: ANN401 - ms-swift's, or another object with these names
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
        self._packing = Packing(
            dataset=dataset,
            options=self.options,
            budgets=(budgets := Budgets.of(self.options, self.options.pack_length(template))),
            reader=SampleReader(
                names=budgets.names,
                measure=measure,
                image_token_id=token_id(template, "image_token_id", image_token_id),
                video_token_id=token_id(template, "video_token_id", video_token_id),
                merge_size=merge_size(template),
            ),
            rank=Share.of_rank(rank, world_size),
            lengths=lengths,
        )
        # A fused dataset that was used before stands at an epoch: its packs begin there.
        self._epoch = Epoch(self._packing, dataset.epoch if hasattr(dataset, "fused_sizes") else 0)
        self._packs: Packs | None = None
        self._skip = 0
        self._resume: State | None = None
        self._moves, self._one_use = WorkerMoves(), OneUse()
        if template is not None:
            prepare_template(template, self.options)

    @classmethod
    def from_options(
        cls,
        dataset: Any,  # noqa: ANN401
        options: VisionPackingOptions,
        **others: Any,  # noqa: ANN401 - the keywords that are no options
    ) -> PackedVLDataset:
        """The dataset with its options in one piece; ``others`` are template, lengths, rank, …"""
        names = [part.name for part in fields(options) if part.name not in OF_THE_TRAINER]
        return cls(dataset, **{name: getattr(options, name) for name in names}, **others)

    @property
    def packing_length(self) -> int:
        """The most tokens in a pack."""
        return self._packing.budgets.tokens

    @property
    def lengths_needed(self) -> str:
        """What to give, in words, so that the number of packs is known."""
        return self._packing.budgets.lengths_needed

    @property
    def rank(self) -> tuple[int, int]:
        """Which rank's packs these are, and of how many ranks."""
        return self._packing.rank.index, self._packing.rank.count

    @property
    def epoch(self) -> int:
        """The epoch whose packs come."""
        return self._epoch.number

    def set_epoch(self, epoch: int) -> None:
        """Tell the dataset below of the epoch first; then packing starts anew in its new order."""
        self._move_to(require_integer("epoch", epoch, 0))
        # A trainer names the epoch once more after a state of it was loaded: that is kept.
        is_kept = self._resume is not None and self._resume["epoch"] == epoch
        if not is_kept or self._one_use.is_over():
            self._resume = None
        self._tell_workers()

    def fix_num_packs(self, number: int | None) -> None:
        """Have this many packs in every epoch; None: as many as the samples fill.

        Trainers count the packs of the first epoch and take as many from all others. An epoch with
        fewer keeps the group that it would drop, then splits its largest packs.
        """
        self._packing = replace(self._packing, num_packs=number)
        self._move_to(self.epoch)
        self._tell_workers()

    def skip_packs(self, number: int) -> None:
        """Have the next iteration begin behind this many of the rank's packs, which are not read.

        Workers share what is skipped as they share packs; lengths must be known.
        """
        len(self)  # which says what is missing where lengths are not known
        self._skip = require_integer("packs to skip", number, 0)
        self._tell_workers()

    def map_style(self) -> MapStylePacks:
        """The packs by number, for a trainer whose sampler deals them to ranks (ms-swift's)."""
        return MapStylePacks(self)

    def iterable_style(self) -> IterableStylePacks:
        """The packs in order, without `len`, for a trainer that sends each to one rank."""
        return IterableStylePacks(self)

    def current_epoch(self) -> Epoch:
        """The epoch whose packs come; a worker that lives on learns here that it changed."""
        if (move := self._moves.news()) is not None:
            fixed = None if move.num_packs < 0 else move.num_packs
            self._packing = replace(self._packing, num_packs=fixed)
            self._move_to(move.epoch)
            self._resume, self._skip = None, move.skip
        self._require_epoch_of_fusion()
        return self._epoch

    def _tell_workers(self) -> None:
        self._one_use.renew()
        self._moves.tell(
            epoch=self.epoch,
            skip=self._skip,
            num_packs=self._packing.num_packs,
            has_state=self._resume is not None,
        )

    def _move_to(self, epoch: int) -> None:
        self._tell_epoch(epoch)
        self._epoch, self._packs, self._skip = Epoch(self._packing, epoch), None, 0

    def _tell_epoch(self, epoch: int) -> None:
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

    def _unknown_number(self) -> TypeError:
        return TypeError(
            "the number of packs is not known before the samples are read; give "
            f"{self.lengths_needed}, or ask length_hint()"
        )

    def length_hint(self) -> int | None:
        """About how many packs the epoch has; None before any was made of unknown lengths."""
        if self._epoch.schedule is not None:
            return len(self)
        if self._packs is None or not has_positions(self.dataset):
            return None
        done = self.telemetry()
        seen = done.ledger.documents.input - done.ledger.documents.pending
        samples = len(self.dataset) / self._packing.rank.count
        return round(done.num_packs * samples / seen) if seen else None

    def __iter__(self) -> Iterator[list[Any]]:
        try:
            return self._opened()
        except Exception as error:
            if not is_worker():
                raise
            return UnopenedPacks(error)  # torch loses what a persistent worker raises before `next`

    def _opened(self) -> Iterator[list[Any]]:
        packs = self.current_epoch().open_packs()
        if self._one_use.is_over():
            self._resume, self._skip = None, 0
        self._set_off(packs)
        if isinstance(packs, PlannedPacks):
            packs.skip(worker_share().count_below(self._skip))
        # Not before all is read: who tries again after an error goes on behind the same state.
        self._packs, self._resume, self._skip = packs, None, 0
        return LoggedPacks(packs, lambda: self._log_end_of(packs))

    def _log_end_of(self, packs: Packs) -> None:
        if packs is self._packs:
            part = worker_share()
            where = f"worker {part.index} of {part.count}: " if part.count > 1 else ""
            logger.info("%s%s", where, self.telemetry().line())

    def _set_off(self, packs: Packs) -> None:
        """Begin the epoch, or go on behind the loaded state; one that is no good is dropped."""
        resume = self._resume
        if resume is None or resume["place"] is None:
            packs.begin()
            return
        self._require_share(resume)  # loaded in the main process, it may be used by a worker
        try:
            packs.delivery.restore(resume)
            packs.restore(resume["place"])
        except InvalidState:
            self._resume = None
            raise

    def _require_epoch_of_fusion(self) -> None:
        """Raise if the fused dataset was moved to another epoch behind the packs' back."""
        if not hasattr(self.dataset, "fused_sizes") or self.dataset.epoch == self.epoch:
            return
        raise InvalidOption(
            f"the fused dataset stands at epoch {self.dataset.epoch} but its packs at "
            f"{self.epoch}; call set_epoch of the packed dataset alone, and fuse anew for another"
        )

    def telemetry(self) -> PackingTelemetry:
        """What this process delivered in this epoch so far."""
        if self._packs is None:
            return self._epoch.delivery().telemetry(self.epoch)
        return self._packs.delivery.telemetry(self.epoch, self._packs.pending())

    def planned_telemetry(self) -> PackingTelemetry | None:
        """What this rank delivers in the whole epoch, by whichever workers; None if unknown."""
        schedule = self._epoch.schedule
        return None if schedule is None else self._epoch.planned_telemetry(schedule)

    def source_ledgers(self) -> Mapping[str, Ledger]:
        """What became of the samples of each fused dataset, by its name."""
        if self._packs is None:
            return {}
        return self._packs.delivery.by_source(self._packs.pending())

    def state_dict(self) -> State:
        """Where the last delivered pack ends: JSON, and positions rather than samples.

        It is of the process that iterates: with a loader's workers ask a loader that asks them
        (torchdata's `StatefulDataLoader`), or count packs and use `skip_packs`.
        """
        if self._resume is not None:
            return dict(self._resume)
        packs, share = self._packs, self._epoch.share()
        books = {"account": [], "packs": {}} if packs is None else packs.delivery.to_state()
        place = None if packs is None else packs.place()
        terms = {"terms": self._epoch.terms(), "share": [share.index, share.count]}
        return sealed({"epoch": self.epoch, "place": place, **terms, **books})

    def load_state_dict(self, state: object) -> None:
        """Go on behind a state, in the epoch that it was made in; refused under other terms."""
        plain = opened(state)
        epoch, before = read_count("epoch", plain["epoch"]), (self._epoch, self._packs, self._skip)
        try:
            self._move_to(epoch)
            self._require_fit(plain)
            self._resume = plain
            self._tell_workers()
        except BaseException:  # whatever it is: packs that are under way go on
            self._epoch, self._packs, self._skip = before
            self._tell_epoch(self.epoch)
            raise

    def _require_fit(self, state: State) -> None:
        require_same_terms(state["terms"], self._epoch.terms())
        self._require_share(state)
        for name, kinds in (("place", dict | NoneType), ("packs", dict)):
            if not isinstance(state[name], kinds):
                raise InvalidState(f"the state's {name} is {state[name]!r:.60} but must be a dict")

    def _require_share(self, state: State) -> None:
        share = self._epoch.share()
        if state["share"] != [share.index, share.count]:
            raise InvalidState(
                f"the state is of part {state['share']} of ranks and workers and this is part "
                f"{[share.index, share.count]}; continue with as many of them, or count packs and "
                "use skip_packs"
            )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_packs": None}  # a worker makes its own
