"""All packs of an epoch, planned from known sizes before any sample is read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quire.errors import InvalidOption
from quire.plan.lengths import IntArray
from quire.vision.budgets import Budgets
from quire.vision.carry_over import CarryOver, Group, Positions
from quire.vision.options import VisionPackingOptions
from quire.vision.ranks import Share, split_to
from quire.vision.scope import WholeEpoch

LENGTHENING_VERSION = 2
"""Counts up whenever an epoch would get its additional packs in another way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """One rank's packs, in order, and the positions that are in none, by reason."""

    packs: list[Group]
    dropped: list[tuple[str, int]]
    sizes: IntArray
    """Of all samples, by position."""
    lengthened: bool = False
    """Whether the epoch has more packs than its plan, because other epochs have more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlan:
    """One rank's groups before ranks are given the same number of packs."""

    kept: list[Group]
    underfilled: Group | None
    """The last underfilled group, where ``packing_drop_last`` drops it."""
    groups: list[Group]
    """The kept groups and the underfilled one, in order."""
    unusable: list[tuple[str, int]]
    """Positions of samples that are in no group, by reason."""

    @property
    def num_samples(self) -> int:
        """Samples that are in groups."""
        return sum(len(group.positions) for group in self.groups)


class PackCounts(NamedTuple):
    """How many packs every rank has in an epoch."""

    planned: int
    without_loss: int
    """If no group is dropped; at most as many as the rank with the fewest samples can have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochPlan:
    """One rank's groups, and how many packs every rank has.

    >>> from quire.vision.options import VisionPackingOptions
    >>> options = VisionPackingOptions(packing_length=10)
    >>> sizes = np.array([[9], [9], [2]])  # the last sample is an underfilled group
    >>> plan = plan_epoch(sizes, Share(), options, Budgets(tokens=10))
    >>> plan.counts
    PackCounts(planned=2, without_loss=3)
    >>> plan.schedule().dropped, plan.schedule(3).dropped
    ([('drop_last', 2)], [])
    """

    mine: RankPlan
    fewest: tuple[int, int]
    """Samples of the rank that has the fewest, and which rank that is."""
    sizes: IntArray
    counts: PackCounts
    fingerprint: str | None = None
    """Of all ranks' packs, where a whole epoch was grouped: another solver may group otherwise."""

    def schedule(self, num_packs: int | None = None) -> Schedule:
        """The rank's packs: as many as planned, or more, for which groups are kept, then split.

        A rank that must split a group drops none.
        """
        planned = self.counts.planned
        wanted = planned if num_packs is None else num_packs
        if wanted < planned:
            raise InvalidOption(
                f"an epoch has {planned} packs but num_packs is {wanted}; fix it to the longest "
                "epoch's"
            )
        num_samples, rank = self.fewest
        if num_samples < wanted:  # on every rank, or the others would wait for this one
            raise InvalidOption(
                f"rank {rank} has {num_samples} samples but another rank has {wanted} packs, and "
                "every rank needs as many; set packing_drop_last, or use fewer ranks"
            )
        mine, dropped = self.mine, list(self.mine.unusable)
        packs = mine.kept
        if len(packs) < wanted:
            packs = split_to(mine.groups, wanted, self.sizes[:, 0])
        elif mine.underfilled is not None:
            dropped += [("drop_last", position) for position in mine.underfilled.positions]
        surplus = [position for group in packs[wanted:] for position in group.positions]
        return Schedule(
            packs=packs[:wanted],
            dropped=[*dropped, *(("rank_equalize", position) for position in surplus)],
            sizes=self.sizes,
            lengthened=wanted > planned,
        )


def plan_epoch(
    sizes: IntArray,
    share: Share,
    options: VisionPackingOptions,
    budgets: Budgets,
    whole: WholeEpoch | None = None,
) -> EpochPlan:
    """The plan of a rank, which has as many packs as every other rank.

    Buffer by buffer, or by ``whole`` in windows that are as large as an epoch mostly is.
    """
    ranks = [
        _plan_rank(sizes, Share(index=rank, count=share.count), options, budgets, whole)
        for rank in range(share.count)
    ]
    kept = [len(rank.kept) for rank in ranks]
    most = max(len(rank.groups) for rank in ranks)
    fewest = min((rank.num_samples, number) for number, rank in enumerate(ranks))
    return EpochPlan(
        mine=ranks[share.index],
        fewest=fewest,
        sizes=sizes,
        counts=PackCounts(
            planned=min(kept) if options.packing_drop_last else max(kept),
            without_loss=min(most, fewest[0]),
        ),
        fingerprint=None if whole is None else _fingerprint([rank.kept for rank in ranks]),
    )


def even_num_packs(epochs: Sequence[PackCounts]) -> int:
    """The packs of every epoch, where all epochs must have the same number.

    As many as the longest epoch has. An epoch with fewer is lengthened, and so drops nothing: if
    one of its ranks then has even more packs, that becomes the number, and other epochs follow.

    >>> even_num_packs([PackCounts(5, 6), PackCounts(4, 5)])
    5
    >>> even_num_packs([PackCounts(5, 7), PackCounts(4, 6)])
    7
    """
    number = max((counts.planned for counts in epochs), default=0)
    while True:
        needed = [counts.without_loss for counts in epochs if counts.planned < number]
        if max(needed, default=0) <= number:
            return number
        number = max(needed)


def _plan_rank(
    sizes: IntArray,
    share: Share,
    options: VisionPackingOptions,
    budgets: Budgets,
    whole: WholeEpoch | None,
) -> RankPlan:
    positions = np.arange(share.index, len(sizes), share.count, dtype=np.int64)
    kept, unusable = _without_unusable(positions, sizes, options, budgets)
    buffer = options.packing_buffer if whole is None else whole.window
    steps = 0 if whole is None else whole.search_steps(len(sizes))
    carry = CarryOver(budgets, options.packing_min_fill_ratio, buffer, steps)
    packs: list[Group] = []
    while len(kept) >= carry.room:  # what does not fill a buffer is the epoch's end
        chunk, kept = kept[: carry.room], kept[carry.room :]
        carry.add(chunk, sizes[chunk])
        packs += carry.take_groups()
    carry.add(kept, sizes[kept])
    last, underfilled = carry.finish(drop_last=options.packing_drop_last)
    everything = last if underfilled is None else [*last, underfilled]
    groups = [*packs, *sorted(everything, key=lambda group: group.positions)]
    packs += last
    if whole is not None:
        packs, groups = (whole.in_drawn_order(each, share.index) for each in (packs, groups))
    return RankPlan(kept=packs, underfilled=underfilled, groups=groups, unusable=unusable)


def _fingerprint(ranks: list[list[Group]]) -> str:
    digest = hashlib.sha256()
    for packs in ranks:
        for group in packs:
            digest.update(np.array([*group.positions, -1], dtype="<i8").tobytes())
        digest.update(b"rank")
    return digest.hexdigest()[:32]


def _without_unusable(
    positions: Positions, sizes: IntArray, options: VisionPackingOptions, budgets: Budgets
) -> tuple[Positions, list[tuple[str, int]]]:
    """The positions of samples that go into packs, and the others with the reason."""
    empty = sizes[positions, 0] == 0
    skipped = np.zeros(len(positions), dtype=bool)
    if not options.packing_allow_single_long:
        skipped = budgets.oversized(sizes[positions]) & ~empty
    dropped = [("empty", position) for position in positions[empty].tolist()]
    dropped += [("skipped_oversized", position) for position in positions[skipped].tolist()]
    return positions[~empty & ~skipped], dropped
