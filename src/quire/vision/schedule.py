"""All packs of an epoch, planned from known sizes before any sample is read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from quire.errors import InvalidOption
from quire.plan.lengths import IntArray
from quire.vision.budgets import Budgets
from quire.vision.carry_over import CarryOver, Group, Positions
from quire.vision.options import VisionPackingOptions
from quire.vision.ranks import Share, equal_packs, split_to
from quire.vision.scope import WholeEpoch


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """One rank's packs, in order, and the positions that are in none, by reason."""

    packs: list[Group]
    dropped: list[tuple[str, int]]
    sizes: IntArray
    """Of all samples, by position."""
    fingerprint: str | None = None
    """Of all ranks' packs, where a whole epoch was grouped: another solver may group otherwise."""


def plan_epoch(
    sizes: IntArray,
    share: Share,
    options: VisionPackingOptions,
    budgets: Budgets,
    whole: WholeEpoch | None = None,
) -> Schedule:
    """The packs of a rank: as many as any other rank has.

    Buffer by buffer, or by ``whole`` in windows that are as large as an epoch mostly is.
    """
    ranks = [
        _plan_rank(sizes, Share(index=rank, count=share.count), options, budgets, whole)
        for rank in range(share.count)
    ]
    equal = equal_packs([packs for packs, _ in ranks], sizes[:, 0], drop=options.packing_drop_last)
    surplus = [position for group in equal.surplus[share.index] for position in group.positions]
    dropped = [*ranks[share.index][1], *(("rank_equalize", position) for position in surplus)]
    fingerprint = None if whole is None else _fingerprint([packs for packs, _ in ranks])
    packs = equal.packs[share.index]
    return Schedule(packs=packs, dropped=dropped, sizes=sizes, fingerprint=fingerprint)


def with_num_packs(schedule: Schedule, wanted: int, rank: int = 0) -> Schedule:
    """The schedule with as many packs as wanted: the largest are split, no sample is left out."""
    found = len(schedule.packs)
    if found > wanted:
        raise InvalidOption(
            f"an epoch has {found} packs but num_packs is {wanted}; fix it to the longest epoch's"
        )
    if found == wanted:
        return schedule
    packs = split_to(schedule.packs, wanted, schedule.sizes[:, 0], rank)
    return replace(schedule, packs=packs)


def _plan_rank(
    sizes: IntArray,
    share: Share,
    options: VisionPackingOptions,
    budgets: Budgets,
    whole: WholeEpoch | None,
) -> tuple[list[Group], list[tuple[str, int]]]:
    positions = np.arange(share.index, len(sizes), share.count, dtype=np.int64)
    kept, dropped = _without_unusable(positions, sizes, options, budgets)
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
    if underfilled is not None:
        dropped += [("drop_last", position) for position in underfilled.positions]
    packs += last
    return packs if whole is None else whole.in_drawn_order(packs, share.index), dropped


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
