"""A buffer of samples and the groups that leave it; integers alone, no samples.

Groups that are full enough leave. The others wait for the next buffer, whose samples fill them up:
those that waited are put together first and then grouped as if they were one, or else the smallest
samples would come last, and wait, in every buffer. A sample that has waited twice leaves, however
full its group is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from quire.plan.lengths import IntArray
from quire.vision.budgets import Budgets
from quire.vision.matching import group_rows

MOST_CARRIES = 2
"""How often a sample may be held back for the next buffer."""

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Samples that stand in one pack, by their position in the input, oldest first."""

    positions: tuple[int, ...]
    tokens: int
    single_long: bool = False


@dataclass(slots=True)
class CarryOver:
    """Samples that wait, and the rules by which they leave."""

    budgets: Budgets
    min_fill: float
    buffer: int
    search_steps: int = 0
    """Steps of search for each sample, see `group_rows`."""
    positions: Positions = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    sizes: IntArray = field(default_factory=lambda: np.zeros((0, 1), dtype=np.int64))
    carries: Positions = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def __post_init__(self) -> None:
        self.sizes = self.sizes.reshape(len(self.positions), len(self.budgets.names))

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def room(self) -> int:
        """How many samples fill the buffer up; one must be new, or waiting would be for nothing."""
        has_new = bool((self.carries == 0).any())  # of a buffer that was half full when saved
        return max(0 if has_new else 1, self.buffer - len(self))

    def add(self, positions: Positions, sizes: IntArray) -> None:
        """Take in samples with their sizes, one row each."""
        self.positions = np.concatenate([self.positions, positions])
        self.sizes = np.concatenate([self.sizes, sizes.reshape(-1, self.sizes.shape[1])])
        self.carries = np.concatenate([self.carries, np.zeros(len(positions), dtype=np.int64)])

    def take_groups(self) -> list[Group]:
        """The groups that leave now, by their oldest sample; all others are carried on."""
        groups, long = self._match()
        fills = self._fills(groups)
        leaving = [
            group
            for group, fill in zip(groups, fills, strict=True)
            if fill >= self.min_fill or int(self.carries[group].max()) >= MOST_CARRIES
        ]
        stays = np.ones(len(self), dtype=bool)
        stays[[place for group in [*leaving, *long] for place in group]] = False
        taken = self._in_order(leaving, long)
        self._keep(stays)
        self.carries += 1
        return taken

    def finish(self, *, drop_last: bool) -> tuple[list[Group], Group | None]:
        """All groups, and the last underfilled one apart if it is to be dropped."""
        groups, long = self._match()
        underfilled = [n for n, fill in enumerate(self._fills(groups)) if fill < self.min_fill]
        dropped = groups.pop(underfilled[-1]) if drop_last and underfilled else None
        taken = self._in_order(groups, long)
        last = None if dropped is None else self._group(dropped, single_long=False)
        self._keep(np.zeros(len(self), dtype=bool))
        return taken, last

    def _match(self) -> tuple[list[list[int]], list[list[int]]]:
        """Groups of places in the buffer, and those of samples that stand alone."""
        alone = self.budgets.oversized(self.sizes)
        waited = np.flatnonzero((self.carries > 0) & ~alone)
        new = np.flatnonzero((self.carries == 0) & ~alone)
        together = [
            waited[group].tolist() for group in group_rows(self.sizes[waited], self.budgets)
        ]
        units = [*together, *([place] for place in new.tolist())]
        sizes = np.concatenate([self._sums(together), self.sizes[new]])
        counts = np.array([len(unit) for unit in units]) if together else None
        groups = group_rows(sizes, self.budgets, counts, self.search_steps)
        matched = [[place for item in group for place in units[item]] for group in groups]
        return matched, [[place] for place in np.flatnonzero(alone).tolist()]

    def _fills(self, groups: list[list[int]]) -> list[float]:
        counts = np.array([len(group) for group in groups], dtype=np.int64)
        fills: list[float] = self.budgets.fills(self._sums(groups), counts).tolist()
        return fills

    def _sums(self, groups: list[list[int]]) -> IntArray:
        """What each group takes up."""
        if not groups:
            return self.sizes[:0]
        places = [place for group in groups for place in group]
        starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
        sums: IntArray = np.add.reduceat(self.sizes[places], starts, axis=0)
        return sums

    def _in_order(self, groups: list[list[int]], long: list[list[int]]) -> list[Group]:
        made = [self._group(group, single_long=False) for group in groups]
        made += [self._group(group, single_long=True) for group in long]
        return sorted(made, key=lambda group: group.positions)

    def _group(self, places: list[int], *, single_long: bool) -> Group:
        return Group(
            positions=tuple(sorted(self.positions[places].tolist())),
            tokens=int(self.sizes[places, 0].sum()),
            single_long=single_long,
        )

    def _keep(self, stays: npt.NDArray[np.bool]) -> None:
        self.positions, self.sizes = self.positions[stays], self.sizes[stays]
        self.carries = self.carries[stays]
