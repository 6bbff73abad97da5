"""Group buffered samples into packs, and keep underfilled groups for the next buffer.

Grouping is best-fit decreasing, by this project's own planner: the heuristics of third-party
packages changed between releases, and every pack with them. `GROUPING_VERSION` is part of a saved
state. With several limits, or a whole epoch at once, `quire.plan.search.several_budgets` does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidLengths, unknown_name
from quire.options import require_integer
from quire.plan.fragments import Rows
from quire.plan.lengths import IntArray, as_lengths
from quire.plan.options import PlanOptions
from quire.plan.search.several_budgets import pack_vectors
from quire.plan.strategies.best_fit import FEW, best_fit, best_fit_few
from quire.vision.options import PackRules

GROUPING_VERSION = 1
"""Incremented whenever the same buffer would be grouped differently."""
MOST_CARRIES = 2
"""How often a sample may be kept for the next buffer."""

Item = TypeVar("Item")
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The samples of one pack, by their position in the input, oldest first."""

    positions: tuple[int, ...]
    tokens: int
    single_long: bool = False


@dataclass(slots=True)
class PackBuffer:
    """Sizes of buffered samples, and the groups that leave the buffer; it holds no samples.

    Groups that are full enough leave. The others wait for the next buffer: samples that waited are
    grouped among themselves first and then treated as one item, otherwise the smallest samples
    would come last and wait in every buffer. A sample that has waited twice leaves regardless of
    its group's fill.
    """

    rules: PackRules
    search_steps: int = 0
    """Search steps per sample, see `group_samples`."""
    positions: Positions = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    sizes: IntArray = field(default_factory=lambda: np.zeros((0, 1), dtype=np.int64))
    carries: Positions = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """How often each sample was kept for the next buffer."""

    def __post_init__(self) -> None:
        self.sizes = self.sizes.reshape(len(self.positions), len(self.rules.measures))

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def room(self) -> int:
        """How many samples fill the buffer; at least one must be new, or waiting has no use."""
        has_new = bool((self.carries == 0).any())  # a buffer that was half full when saved
        return max(0 if has_new else 1, self.rules.buffer_size - len(self))

    def add(self, positions: Positions, sizes: IntArray) -> None:
        """Add samples with their sizes, one row each."""
        self.positions = np.concatenate([self.positions, positions])
        self.sizes = np.concatenate([self.sizes, sizes.reshape(-1, self.sizes.shape[1])])
        self.carries = np.concatenate([self.carries, np.zeros(len(positions), dtype=np.int64)])

    def take_groups(self) -> list[Group]:
        """Remove and return the groups that leave now, ordered by their oldest sample."""
        groups, long = self._match()
        leaving = [
            group
            for group, fill in zip(groups, self._fills(groups), strict=True)
            if fill >= self.rules.min_fill or int(self.carries[group].max()) >= MOST_CARRIES
        ]
        taken = self._as_groups(leaving, long)
        stays = np.ones(len(self), dtype=bool)
        stays[[index for group in [*leaving, *long] for index in group]] = False
        self._keep(stays)
        self.carries += 1
        return taken

    def finish(self) -> tuple[list[Group], Group | None]:
        """All remaining groups, and the last underfilled one separately if it is to be dropped."""
        groups, long = self._match()
        underfilled = [
            number for number, fill in enumerate(self._fills(groups)) if fill < self.rules.min_fill
        ]
        dropped = groups.pop(underfilled[-1]) if self.rules.drop_last and underfilled else None
        taken = self._as_groups(groups, long)
        last = None if dropped is None else self._as_groups([dropped], [])[0]
        self._keep(np.zeros(len(self), dtype=bool))
        return taken, last

    def _match(self) -> tuple[list[list[int]], list[list[int]]]:
        """Groups of indices into the buffer, and one group for each oversized sample."""
        alone = self.rules.oversized(self.sizes)
        waited = np.flatnonzero((self.carries > 0) & ~alone)
        new = np.flatnonzero((self.carries == 0) & ~alone)
        together = [
            waited[group].tolist() for group in group_samples(self.sizes[waited], self.rules)
        ]
        units = [*together, *([index] for index in new.tolist())]
        sizes = np.concatenate([self._sums(together), self.sizes[new]])
        counts = np.array([len(unit) for unit in units]) if together else None
        groups = group_samples(sizes, self.rules, counts, self.search_steps)
        matched = [[index for item in group for index in units[item]] for group in groups]
        return matched, [[index] for index in np.flatnonzero(alone).tolist()]

    def _fills(self, groups: list[list[int]]) -> list[float]:
        counts = np.array([len(group) for group in groups], dtype=np.int64)
        fills: list[float] = self.rules.fills(self._sums(groups), counts).tolist()
        return fills

    def _sums(self, groups: list[list[int]]) -> IntArray:
        """The total size of each group."""
        if not groups:
            return self.sizes[:0]
        indices = [index for group in groups for index in group]
        starts = np.cumsum([0, *(len(group) for group in groups[:-1])])
        sums: IntArray = np.add.reduceat(self.sizes[indices], starts, axis=0)
        return sums

    def _as_groups(self, groups: list[list[int]], long: list[list[int]]) -> list[Group]:
        made = [
            Group(
                positions=tuple(sorted(self.positions[indices].tolist())),
                tokens=int(self.sizes[indices, 0].sum()),
                single_long=number >= len(groups),
            )
            for number, indices in enumerate([*groups, *long])
        ]
        return sorted(made, key=lambda group: group.positions)

    def _keep(self, stays: npt.NDArray[np.bool]) -> None:
        self.positions, self.sizes = self.positions[stays], self.sizes[stays]
        self.carries = self.carries[stays]


def group_samples(
    sizes: IntArray,
    rules: PackRules,
    num_documents: IntArray | None = None,
    search_steps: int = 0,
) -> list[list[int]]:
    """The items of every group, in the order in which the groups were opened.

    ``sizes`` has a row per item and a column per measure; an item is one sample, or
    ``num_documents`` of them that stay together. With ``search_steps`` per item, a search looks
    for fewer groups than best-fit finds.
    """
    if not len(sizes):
        return []
    cap = rules.max_documents_per_row
    is_plain = len(rules.measures) == 1 and (cap is None or num_documents is None)
    if is_plain and not search_steps and len(sizes) <= FEW:
        return best_fit_few(sizes[:, 0].tolist(), rules.max_length, cap)
    if is_plain and not search_steps:
        options = PlanOptions(max_length=rules.max_length, max_documents_per_row=cap)
        rows = best_fit(sizes[:, 0], rules.max_length, options)
    else:
        rows = _vector_rows(sizes, rules, num_documents, search_steps * len(sizes))
    items: list[int] = rows.fragments.tolist()
    return [items[first:end] for first, end in pairwise(rows.offsets.tolist())]


def _vector_rows(
    sizes: IntArray, rules: PackRules, num_documents: IntArray | None, work: int
) -> Rows:
    cap, limits = rules.max_documents_per_row, rules.limits
    if cap is not None:  # one more dimension, in which every sample has size 1
        each = np.ones(len(sizes), dtype=np.int64) if num_documents is None else num_documents
        sizes, limits = np.column_stack([sizes, each]), (*limits, cap)
    effort: Literal["fast", "full"] = "full" if work else "fast"
    return Rows.of_row_numbers(pack_vectors(sizes, limits, effort=effort, work=work))


def calculate_matched_group(
    sequences: Sequence[tuple[Item, int]],
    packing_length: int,
    is_finished: bool = True,
    strategy: str = "binpack",
) -> tuple[list[list[tuple[Item, int]]], list[tuple[Item, int]]]:
    """Groups of (sample, length) pairs, and the last group to carry over if it is not full yet.

    The name, the parameters and the two strategies are ms-swift's: ``binpack`` is best-fit
    decreasing, ``sequential`` keeps the input order. A group has at most ``packing_length``
    tokens; a longer sequence is a group of its own. With ``is_finished`` nothing is carried over.

    >>> sizes = [30, 30, 20, 60, 50, 10]
    >>> groups, carried = calculate_matched_group(list(zip("abcdef", sizes)), 80, False)
    >>> groups
    [[('d', 60), ('c', 20)], [('e', 50), ('a', 30)]]
    >>> carried
    [('b', 30), ('f', 10)]
    """
    require_integer("packing_length", packing_length, 1)
    if strategy not in _STRATEGIES:
        raise unknown_name("strategy", strategy, _STRATEGIES)
    sizes = as_lengths([length for _, length in sequences]).astype(np.int64)
    if len(sizes) and not sizes.min():
        raise InvalidLengths(
            f"sequence {int(sizes.argmin())} has no tokens; leave out empty sequences"
        )
    groups = _STRATEGIES[strategy](sizes, packing_length)
    is_open = bool(groups) and int(sizes[groups[-1]].sum()) < packing_length
    carried = groups.pop() if is_open and not is_finished else []
    chosen = [[sequences[item] for item in group] for group in groups]
    return chosen, [sequences[item] for item in carried]


def _best_fit_groups(sizes: IntArray, max_length: int) -> list[list[int]]:
    oversized = sizes > max_length
    alone = [[item] for item in np.flatnonzero(oversized).tolist()]
    fitting = np.flatnonzero(~oversized)
    groups = group_samples(sizes[fitting].reshape(-1, 1), PackRules(max_length=max_length))
    return alone + [fitting[group].tolist() for group in groups]


def _next_fit_groups(sizes: IntArray, max_length: int) -> list[list[int]]:
    groups: list[list[int]] = []
    room = 0
    for item, size in enumerate(sizes.tolist()):
        if size > room:
            groups.append([])
            room = max_length
        groups[-1].append(item)
        room -= size
    return groups


_STRATEGIES: Mapping[str, Callable[[IntArray, int], list[list[int]]]] = MappingProxyType(
    {"binpack": _best_fit_groups, "sequential": _next_fit_groups}
)
