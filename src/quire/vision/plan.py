"""Plan all packs of an epoch from known sizes, before any sample is read."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from quire.errors import InvalidOption
from quire.plan.lengths import IntArray
from quire.plan.search.columns import BUDGET
from quire.vision.grouping import Group, PackBuffer
from quire.vision.options import PackRules, Scope
from quire.vision.workers import Share

SPLITTING_VERSION = 2
"""Incremented whenever an epoch would get additional packs in another way."""
MOST_SAMPLES = 1 << 20
"""``packing_scope="auto"`` packs larger epochs buffer by buffer: best-fit takes about 40 µs per
sample, and every rank plans for all ranks."""
MOST_CACHED = MOST_SAMPLES
"""Samples of all plans that a dataset keeps."""
MOST_STEPS = 1 << 13
"""Search steps per sample; more would make a few hundred samples as slow as ten thousand."""
WINDOW = 1 << 15
"""Samples of a rank that are grouped at once; their underfilled groups join the next window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeEpoch:
    """Grouping an epoch as a whole: in large windows, by search, packs in random order."""

    seed: int
    epoch: int
    window: int = WINDOW

    def search_steps(self, num_samples: int) -> int:
        """Search steps per sample: all ranks and windows share the cost of one plan.

        >>> WholeEpoch(seed=0, epoch=0).search_steps(1_000_000)
        100
        """
        return min(MOST_STEPS, max(1, BUDGET // max(1, num_samples)))

    def shuffled(self, packs: list[Group], rank: int) -> list[Group]:
        """The packs, ordered by one random sample of each.

        Ordered by their oldest sample, packs of many small samples would come first in every epoch.

        >>> packs = [Group(positions=(0, 9), tokens=8), Group(positions=(4,), tokens=8)]
        >>> [pack.positions for pack in WholeEpoch(seed=0, epoch=1).shuffled(packs, rank=0)]
        [(4,), (0, 9)]
        """
        draws = np.random.PCG64([self.seed, self.epoch, rank]).random_raw(len(packs)).tolist()
        keys = [
            pack.positions[draw % len(pack.positions)]
            for draw, pack in zip(draws, packs, strict=True)
        ]
        return [packs[index] for index in np.argsort(keys).tolist()]


def packs_whole_epoch(
    scope: Scope, rules: PackRules, sizes: IntArray | None, random_access: bool
) -> bool:
    """Whether an epoch of these sizes is grouped as a whole.

    Without random access every sample would be held in memory until its pack is due.
    """
    if scope == "epoch" and (sizes is None or not random_access):
        missing = "lengths are not known" if random_access else "the dataset is read in order"
        raise InvalidOption(
            f"packing_scope is 'epoch' but {missing}; use a dataset with __getitem__ and give "
            f"{rules.lengths_needed}, or set packing_scope to 'buffer'"
        )
    if scope != "auto" or sizes is None or not random_access:
        return scope == "epoch"
    return rules.has_several_limits and len(sizes) <= MOST_SAMPLES


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """One rank's packs, in order, and the positions that are in no pack, by reason."""

    packs: list[Group]
    dropped: list[tuple[str, int]]
    sizes: IntArray
    """Sizes of all samples, by position."""
    is_split: bool = False
    """Whether packs were split because other epochs have more packs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PackSizes:
    """The samples of one rank's packs, pack after pack, and how large each is in every measure."""

    per_pack: IntArray
    """How many samples each pack has."""
    positions: IntArray
    sizes: Mapping[str, IntArray]
    """Tokens, and images and patches where they are known, of every sample in a pack."""
    limits: Mapping[str, int]
    """The limits of a pack; a measure without a limit is not among them."""
    num_single_long: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlan:
    """One rank's groups, before all ranks are given the same number of packs."""

    kept: list[Group]
    underfilled: Group | None
    """The last underfilled group, if ``packing_drop_last`` drops it."""
    groups: list[Group]
    """The kept groups and the underfilled one, in order."""
    unusable: list[tuple[str, int]]
    """Positions of samples that are in no group, by reason."""

    @property
    def num_samples(self) -> int:
        """Samples in groups."""
        return sum(len(group.positions) for group in self.groups)


class PackCounts(NamedTuple):
    """How many packs every rank has in an epoch."""

    planned: int
    without_drops: int
    """If no group is dropped; at most as many as the rank with the fewest samples can have."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochPlan:
    """One rank's groups, and how many packs every rank has.

    >>> sizes = np.array([[9], [9], [2]])  # the last sample is an underfilled group
    >>> plan = plan_epoch(sizes, Share(), PackRules(max_length=10))
    >>> plan.counts
    PackCounts(planned=2, without_drops=3)
    >>> plan.schedule().dropped, plan.schedule(3).dropped
    ([('drop_last', 2)], [])
    """

    mine: RankPlan
    fewest: tuple[int, int]
    """Samples of the rank that has the fewest, and that rank."""
    sizes: IntArray
    counts: PackCounts
    fingerprint: str | None = None
    """Of all ranks' packs, if a whole epoch was grouped: another solver may group differently."""

    def schedule(self, num_packs: int | None = None) -> Schedule:
        """The rank's packs: as many as planned, or ``num_packs``.

        To have more, a rank keeps the group it would drop, then splits its largest groups.
        """
        planned = self.counts.planned
        wanted = planned if num_packs is None else num_packs
        if wanted < planned:
            raise InvalidOption(
                f"an epoch has {planned} packs but num_packs is {wanted}; set it to the number of "
                "packs in the longest epoch"
            )
        num_samples, rank = self.fewest
        if num_samples < wanted:  # an error on every rank, or the others would wait for this one
            raise InvalidOption(
                f"rank {rank} has {num_samples} samples but another rank has {wanted} packs, and "
                "every rank needs the same number; set packing_drop_last, or use fewer ranks"
            )
        packs, dropped = self.mine.kept, list(self.mine.unusable)
        if len(packs) < wanted:
            packs = split_groups(self.mine.groups, wanted, self.sizes[:, 0])
        elif self.mine.underfilled is not None:
            dropped += [("drop_last", position) for position in self.mine.underfilled.positions]
        for group in packs[wanted:]:
            dropped += [("rank_equalize", position) for position in group.positions]
        return Schedule(
            packs=packs[:wanted], dropped=dropped, sizes=self.sizes, is_split=wanted > planned
        )


def plan_epoch(
    sizes: IntArray, share: Share, rules: PackRules, whole: WholeEpoch | None = None
) -> EpochPlan:
    """The plan of a rank, which has as many packs as every other rank.

    Samples are grouped buffer by buffer, each rank its own, or with ``whole`` in windows that
    usually hold an epoch, all ranks together.
    """
    ranks = None if whole is None else _dealt_to_ranks(sizes, share.count, rules, whole)
    ranks = ranks or [
        _plan_rank(sizes, Share(index=rank, count=share.count), rules, whole)
        for rank in range(share.count)
    ]
    kept = [len(rank.kept) for rank in ranks]
    fewest = min((rank.num_samples, number) for number, rank in enumerate(ranks))
    return EpochPlan(
        mine=ranks[share.index],
        fewest=fewest,
        sizes=sizes,
        counts=PackCounts(
            planned=min(kept) if rules.drop_last else max(kept),
            without_drops=min(max(len(rank.groups) for rank in ranks), fewest[0]),
        ),
        fingerprint=None if whole is None else _fingerprint([rank.kept for rank in ranks]),
    )


def equal_num_packs(epochs: Sequence[PackCounts]) -> int:
    """The number of packs in every epoch, if all epochs must have the same number.

    The longest epoch sets it. A shorter epoch then drops no group: if one of its ranks has even
    more groups, their number is used instead.

    >>> equal_num_packs([PackCounts(5, 6), PackCounts(4, 5)])
    5
    >>> equal_num_packs([PackCounts(5, 7), PackCounts(4, 6)])
    7
    """
    number = max((epoch.planned for epoch in epochs), default=0)
    while True:
        needed = [epoch.without_drops for epoch in epochs if epoch.planned < number]
        if max(needed, default=0) <= number:
            return number
        number = max(needed)


def _dealt_to_ranks(
    sizes: IntArray, count: int, rules: PackRules, whole: WholeEpoch
) -> list[RankPlan] | None:
    """The groups of all samples, dealt to ranks in turn; None if a rank gets too few samples.

    Each rank would otherwise have an underfilled group, and fewer samples to choose from.
    """
    everything = _plan_rank(sizes, Share(), rules, whole)
    underfilled = everything.underfilled
    last = len(everything.kept) % count
    ranks = []
    for rank in range(count):
        kept = everything.kept[rank::count]
        mine = {id(group) for group in kept}
        if rank == last and underfilled is not None:
            mine.add(id(underfilled))
        ranks.append(
            RankPlan(
                kept=kept,
                underfilled=underfilled if rank == last else None,
                groups=[group for group in everything.groups if id(group) in mine],
                unusable=[item for item in everything.unusable if item[1] % count == rank],
            )
        )
    fewest = min(rank.num_samples for rank in ranks)
    return ranks if fewest >= max(len(rank.groups) for rank in ranks) else None


def _plan_rank(
    sizes: IntArray, share: Share, rules: PackRules, whole: WholeEpoch | None
) -> RankPlan:
    positions = np.arange(share.index, len(sizes), share.count, dtype=np.int64)
    empty = sizes[positions, 0] == 0
    oversized = (rules.overlong == "drop") & rules.oversized(sizes[positions]) & ~empty
    unusable = [("empty", position) for position in positions[empty].tolist()]
    unusable += [("skipped_oversized", position) for position in positions[oversized].tolist()]
    rest = positions[~empty & ~oversized]
    if whole is None:
        buffer = PackBuffer(rules)
    else:
        rules = replace(rules, buffer_size=whole.window)
        buffer = PackBuffer(rules, whole.search_steps(len(sizes)))
    packs: list[Group] = []
    while len(rest) >= buffer.room:  # less than a full buffer is left at the end of the epoch
        chunk, rest = rest[: buffer.room], rest[buffer.room :]
        buffer.add(chunk, sizes[chunk])
        packs += buffer.take_groups()
    buffer.add(rest, sizes[rest])
    last, underfilled = buffer.finish()
    everything = last if underfilled is None else [*last, underfilled]
    groups = [*packs, *sorted(everything, key=lambda group: group.positions)]
    packs += last
    if whole is not None:
        packs, groups = (whole.shuffled(each, share.index) for each in (packs, groups))
    return RankPlan(kept=packs, underfilled=underfilled, groups=groups, unusable=unusable)


def _fingerprint(ranks: list[list[Group]]) -> str:
    digest = hashlib.sha256()
    for packs in ranks:
        for group in packs:
            digest.update(np.array([*group.positions, -1], dtype="<i8").tobytes())
        digest.update(b"rank")
    return digest.hexdigest()[:32]


def split_groups(groups: list[Group], wanted: int, tokens: IntArray) -> list[Group]:
    """The groups, the largest ones split in two until there are enough; no sample is split.

    >>> group = Group(positions=(0, 1, 2), tokens=9)
    >>> [half.positions for half in split_groups([group], 2, np.array([5, 3, 1]))]
    [(0,), (1, 2)]
    """
    # The largest first; of equal ones, the earlier, so that every rank finds the same.
    heap = [_heap_entry(index, group) for index, group in enumerate(groups)]
    heapq.heapify(heap)
    for _ in range(wanted - len(groups)):
        _, _, (index, _), group = heapq.heappop(heap)
        for half in _halves(group, tokens):
            heapq.heappush(heap, _heap_entry(index, half))
    return [group for _, _, _, group in sorted(heap, key=lambda entry: entry[2])]


def _heap_entry(index: int, group: Group) -> tuple[bool, int, tuple[int, tuple[int, ...]], Group]:
    cannot_split = len(group.positions) < 2
    return cannot_split, -group.tokens, (index, group.positions), group


def _halves(group: Group, tokens: IntArray) -> tuple[Group, Group]:
    """Two groups of one, as even as splitting between two of its samples allows."""
    sums = np.cumsum(tokens[list(group.positions)])[:-1].tolist()
    cut = min(range(len(sums)), key=lambda index: abs(group.tokens - 2 * sums[index]))
    return (
        Group(positions=group.positions[: cut + 1], tokens=sums[cut]),
        Group(positions=group.positions[cut + 1 :], tokens=group.tokens - sums[cut]),
    )


class PlanCache:
    """The latest plans, so that a Trainer which counts the packs of all epochs plans each once.

    Workers do not inherit them.
    """

    def __init__(self) -> None:
        self._plans: dict[Hashable, EpochPlan] = {}

    def get(self, key: Hashable, make: Callable[[], EpochPlan]) -> EpochPlan:
        """The plan with this key, made if it is not cached."""
        if key not in self._plans:
            self._plans[key] = make()
            while len(self._plans) > 1 and self._num_samples > MOST_CACHED:
                del self._plans[next(iter(self._plans))]
        return self._plans[key]

    @property
    def _num_samples(self) -> int:
        return sum(len(plan.sizes) for plan in self._plans.values())

    def __getstate__(self) -> dict[str, Any]:
        return {"_plans": {}}
