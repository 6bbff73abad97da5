"""Units to slots: how many micro-steps there are, and which unit goes where.

A slot is a place for one row: rank r of micro-step m is slot ``m * num_ranks + r``. Kinds do not
share micro-steps, so each kind is solved alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quire.errors import InvalidOption
from quire.plan.exchange import exchanged, whole_costs
from quire.plan.lengths import IntArray
from quire.step.options import StepOptions
from quire.step.ranks import GroupedRanks
from quire.step.sharing import Free, SameMicroStep, SameRank, Sharing
from quire.step.units import Units

_MOST_ROWS = 2**17
"""More rows than this are made only for as many units."""


@dataclass(frozen=True, kw_only=True)
class Slots:
    """The slot of every unit, and how many micro-steps there are and must be."""

    slot: IntArray
    num_micro_steps: int
    lower_bound: int


def find_slots(units: Units, options: StepOptions) -> Slots:
    """Slots for all units, such that the rows of every micro-step cost about the same."""
    number = len(units.costs)
    costs = whole_costs(units.costs, number)
    members: list[IntArray] = [
        np.flatnonzero(units.kinds == kind) for kind in range(int(units.kinds.max(initial=-1)) + 1)
    ]
    parts = _parts(units, costs, members, options)
    steps = [part.least_steps() for part in parts]
    total = options.num_micro_steps(sum(steps))
    _require_possible(total, number, options)
    costs_of = [int(part.costs.sum()) for part in parts]
    for _ in range(total - sum(steps) if parts else 0):  # one more where steps cost most
        mean = [cost / count for cost, count in zip(costs_of, steps, strict=True)]
        steps[mean.index(max(mean))] += 1
    slot = np.empty(number, dtype=np.int64)
    first = 0
    for which, part, count in zip(members, parts, steps, strict=True):
        slot[which] = first * options.num_ranks + _search(part, count)
        first += count
    bound = options.num_micro_steps(sum(part.lower_bound for part in parts))
    return Slots(slot=slot, num_micro_steps=total, lower_bound=bound)


def _require_possible(num_steps: int, number: int, options: StepOptions) -> None:
    """Raise if options ask for a great many rows, most of them dummies."""
    rows = num_steps * options.num_ranks
    if rows > max(_MOST_ROWS, number):
        raise InvalidOption(
            f"{num_steps} micro-steps of {options.num_ranks} ranks are {rows} rows for {number} "
            "sequences or groups; lower num_ranks, min_micro_steps or micro_steps_multiple_of"
        )


def _parts(
    units: Units, costs: IntArray, members: list[IntArray], options: StepOptions
) -> list[Sharing]:
    """A problem for each kind."""
    share = options.groups_share if options.groups is not None else "row"
    limits, ranks = units.limits, options.num_ranks
    if share == "rank":
        groups, given = units.groups, _ranks_of_mixed_groups(units, costs, ranks)
        return [
            SameRank(units.sizes[w], costs[w], limits, ranks, groups[w], given[w]) for w in members
        ]
    if share == "micro_step":
        groups = units.groups
        return [SameMicroStep(units.sizes[w], costs[w], limits, ranks, groups[w]) for w in members]
    return [Free(units.sizes[w], costs[w], limits, ranks) for w in members]


def _ranks_of_mixed_groups(units: Units, costs: IntArray, num_ranks: int) -> IntArray:
    """The rank of every unit if groups have units of several kinds; otherwise none, -1."""
    kinds_of_groups = np.unique(np.stack([units.groups, units.kinds]), axis=1)
    if not len(costs) or len(np.unique(units.groups)) == kinds_of_groups.shape[1]:
        return np.full(len(costs), -1, dtype=np.int64)
    search = GroupedRanks(units.sizes, costs, units.limits, num_ranks, units.groups)
    return search.find(least_rows=1)[0]


def _search(part: Sharing, num_steps: int) -> IntArray:
    """The slots of a kind's units: the best that the search finds from any start."""
    starts, zones = part.starts(num_steps), part.zones(num_steps)
    if part.num_ranks == 1 or len(part.costs) < 2:
        return _without_dummies(starts[0], part.costs, zones)
    best = exchanged(part.sizes, part.costs, part.limits, zones, part.num_ranks, starts)
    return _without_dummies(best, part.costs, zones)


def _without_dummies(slots: IntArray, costs: IntArray, zones: IntArray) -> IntArray:
    """The slots, with a unit in each if possible: the cheapest one of a row that has several."""
    counts = np.bincount(slots, minlength=len(zones))
    exhausted = set()
    for empty in np.flatnonzero(counts == 0):
        if zones[empty] in exhausted:
            continue
        spare = np.flatnonzero((counts[slots] > 1) & (zones[slots] == zones[empty]))
        if not len(spare):
            exhausted.add(zones[empty])
        else:
            unit = spare[costs[spare].argmin()]
            counts[slots[unit]] -= 1
            counts[empty] += 1
            slots[unit] = empty
    return slots
