"""`pack_step`: the sequences of one training step to rows, ranks and micro-steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from quire.errors import InvalidOption
from quire.ledger import Ledger, Tally, TokenTally
from quire.options import known_options, takes_options
from quire.plan.lengths import MOST_TOKENS, FloatArray, IntArray, Lengths
from quire.step.costs import sequence_costs, sums
from quire.step.options import StepOptions
from quire.step.plan import StepPlan
from quire.step.slots import Slots, find_slots
from quire.step.units import Units, make_units, read_lengths


@takes_options(StepOptions)
def pack_step(lengths: Lengths, **named: Any) -> StepPlan:  # noqa: ANN401 - StepOptions
    """A plan for one training step: which sequences each rank packs into each micro-step.

    No row exceeds its budget, every rank has the same number of micro-steps, every sequence is in
    one row, and the rows of a micro-step cost about the same. It is a pure function of its
    arguments: every rank computes the same plan, without communication.

    >>> plan = pack_step([5, 3, 4, 4, 2, 6], max_length=8, num_ranks=2)
    >>> [[plan.row(rank, step).tolist() for step in range(2)] for rank in range(2)]
    [[[1, 2], [0]], [[5], [3, 4]]]
    """
    options = StepOptions(**known_options(StepOptions, named))
    sequences = read_lengths(lengths)
    units = make_units(sequences, options)
    found = find_slots(units, options)
    slot_of_piece = _ordered(found, units, options)[units.unit]
    order = np.lexsort((units.pieces.starts, units.pieces.documents, slot_of_piece))
    pieces, slot = units.pieces.take(order), slot_of_piece[order]
    num_rows = options.num_ranks * found.num_micro_steps
    costs = sums(slot, sequence_costs(pieces.lengths, options.cost), num_rows)
    used = np.bincount(slot, options.spaces(pieces.lengths), num_rows).astype(np.int64)
    row_lengths = _padded_lengths(used, options)
    if (places := float(row_lengths.sum(dtype=np.float64))) > MOST_TOKENS:
        raise InvalidOption(
            f"{num_rows} rows padded with align_rows={options.align_rows} have {places:.3g} places "
            f"but a step has at most {MOST_TOKENS:.3g}; lower align_rows"
        )
    return StepPlan(
        options=options,
        num_micro_steps=found.num_micro_steps,
        lower_bound=found.lower_bound,
        row_offsets=np.searchsorted(slot, np.arange(num_rows + 1)),
        documents=pieces.documents,
        starts=pieces.starts,
        stops=pieces.stops,
        lengths=sequences,
        row_lengths=row_lengths.reshape(options.num_ranks, -1),
        costs=costs.reshape(options.num_ranks, -1),
        ledger=_ledger(sequences, units, int(row_lengths.sum())),
    )


def _ordered(found: Slots, units: Units, options: StepOptions) -> IntArray:
    """The final row of every unit, ``rank * num_micro_steps + micro_step``."""
    ranks, steps = options.num_ranks, found.num_micro_steps
    costs = sums(found.slot, units.costs, steps * ranks).reshape(steps, ranks)
    position = np.empty(steps, dtype=np.int64)
    position[_step_order(costs, options.order)] = np.arange(steps)
    step, place = np.divmod(found.slot, ranks)
    rank = place
    if options.groups is None or options.groups_share != "rank":
        rank = _ranks(costs)[step, place]
    return rank * steps + position[step]


def _step_order(costs: FloatArray, order: str) -> IntArray:
    """The micro-steps in the order in which they are executed."""
    largest_first = np.argsort(-costs.max(axis=1), kind="stable")
    if order == "largest_first":
        return largest_first
    return np.concatenate([largest_first[::2][::-1], largest_first[1::2]])


def _ranks(costs: FloatArray) -> IntArray:
    """The rank of each row: those that have done least so far take the most expensive rows."""
    ranks = np.empty(costs.shape, dtype=np.int64)
    done = np.zeros(costs.shape[1])
    for step, row in enumerate(costs):
        free, expensive = np.argsort(done, kind="stable"), np.argsort(-row, kind="stable")
        ranks[step, expensive] = free
        done[free] += row[expensive]
    return ranks


def _padded_lengths(used: IntArray, options: StepOptions) -> IntArray:
    """The length of each row; a row without sequences is as short as possible, but not empty."""
    needed = np.maximum(used, 1)
    lengths = -(-needed // options.align_rows) * options.align_rows
    if options.shapes is None:
        return lengths
    shapes = options.shapes
    if isinstance(shapes, int):  # empty rows fit any shape, so they are left out
        chosen = best_shapes(lengths[used > 0] if used.any() else lengths, shapes)
    else:
        chosen = np.array(shapes)
    return chosen[np.searchsorted(chosen, lengths)]


def best_shapes(lengths: IntArray, most: int) -> IntArray:
    """At most this many lengths, chosen so that padding rows to the next one costs least.

    An exact dynamic program over the distinct lengths, in ``most * distinct ** 2`` steps.

    >>> best_shapes(np.array([8, 8, 8, 7, 3, 2, 2]), most=2)
    array([3, 8])
    """
    distinct, counts = np.unique(lengths, return_counts=True)
    if len(distinct) <= most:
        return distinct
    rows = np.append(0, np.cumsum(counts))
    # least[j]: places of the shortest j distinct lengths, the last of them being a shape.
    least = rows[1:] * distinct
    chosen = [np.zeros(len(distinct), dtype=np.int64)]
    for _ in range(most - 1):
        best, choice = least.copy(), np.zeros(len(distinct), dtype=np.int64)
        for last in range(1, len(distinct)):
            places = least[:last] + (rows[last + 1] - rows[1 : last + 1]) * distinct[last]
            choice[last] = places.argmin() + 1
            best[last] = places[choice[last] - 1]
        least = best
        chosen.append(choice)
    shapes, last = [], len(distinct)
    for choice in reversed(chosen):
        if last:
            shapes.append(int(distinct[last - 1]))
            last = int(choice[last - 1])
    return np.array(shapes[::-1])


def _ledger(lengths: IntArray, units: Units, places: int) -> Ledger:
    counts = {reason: len(which) for reason, which in units.dropped.items()}
    tokens = {reason: int(lengths[which].sum()) for reason, which in units.dropped.items()}
    emitted = int(units.pieces.lengths.sum())
    return Ledger(
        documents=Tally(
            input=len(lengths), emitted=len(lengths) - sum(counts.values()), dropped=counts
        ),
        tokens=TokenTally(
            input=int(lengths.sum()), emitted=emitted, dropped=tokens, padding=places - emitted
        ),
    ).check()
