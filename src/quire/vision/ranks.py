"""Which samples and packs belong to a rank or a worker, and packs split into more packs."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from quire.errors import InvalidOption
from quire.options import require_integer
from quire.plan.lengths import IntArray
from quire.vision.carry_over import Group


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Every ``count``-th thing, from ``index`` on.

    >>> [n for n in range(7) if Share(index=1, count=3).owns(n)]
    [1, 4]
    """

    index: int = 0
    count: int = 1

    @classmethod
    def of_rank(cls, rank: int, world_size: int) -> Share:
        """The share of a rank, if there is such a rank."""
        world_size = require_integer("world_size", world_size, 1)
        rank = require_integer("rank", rank, 0)
        if rank >= world_size:
            raise InvalidOption(f"rank is {rank} but must be below world_size, {world_size}")
        return cls(index=rank, count=world_size)

    def owns(self, number: int) -> bool:
        """Whether a thing with this number is in the share."""
        return number % self.count == self.index

    def number(self, ordinal: int) -> int:
        """The number of the first, second, third thing of the share, counted from 0."""
        return self.index + ordinal * self.count

    def count_below(self, number: int) -> int:
        """How many things of the share have a smaller number.

        >>> Share(index=1, count=3).count_below(5)
        2
        """
        return max(0, -(-(number - self.index) // self.count))

    def divided(self, part: Share) -> Share:
        """A part of the share: of a rank's samples, those of one of its workers."""
        return Share(index=self.number(part.index), count=self.count * part.count)


def split_to(groups: list[Group], wanted: int, tokens: IntArray) -> list[Group]:
    """The groups, the largest of them cut in two until there are enough; no sample is cut.

    >>> import numpy as np
    >>> pair = Group(positions=(0, 1, 2), tokens=9)
    >>> [g.positions for g in split_to([pair], 2, np.array([5, 3, 1]))]
    [(0,), (1, 2)]
    """
    # The largest first; of equals, the earlier one, so that every rank finds the same.
    heap = [_entry(place, group) for place, group in enumerate(groups)]
    heapq.heapify(heap)
    for _ in range(wanted - len(groups)):
        _, _, (place, _), group = heapq.heappop(heap)
        for half in _halves(group, tokens):
            heapq.heappush(heap, _entry(place, half))
    return [group for _, _, _, group in sorted(heap, key=lambda entry: entry[2])]


def _entry(place: int, group: Group) -> tuple[bool, int, tuple[int, tuple[int, ...]], Group]:
    alone = len(group.positions) < 2
    return alone, -group.tokens, (place, group.positions), group


def _halves(group: Group, tokens: IntArray) -> tuple[Group, Group]:
    """Two groups from one, as even as a cut between two of its samples makes them."""
    lengths: list[int] = tokens[list(group.positions)].tolist()
    before, best = 0, (group.tokens + 1, 1, 0)
    for place, length in enumerate(lengths[:-1], start=1):
        before += length
        best = min(best, (abs(group.tokens - 2 * before), place, before))
    _, cut, first = best
    return (
        Group(positions=group.positions[:cut], tokens=first),
        Group(positions=group.positions[cut:], tokens=group.tokens - first),
    )
