"""`pack_step`: the sequences of one training step to rows, ranks and micro-steps."""

from __future__ import annotations

import numpy as np

from quire.errors import InvalidOption
from quire.ledger import Ledger, Tally, TokenTally
from quire.options import takes_options
from quire.plan.lengths import MOST_TOKENS, FloatArray, IntArray, Lengths
from quire.step.costs import sequence_costs, sums
from quire.step.options import StepOptions
from quire.step.plan import StepPlan
from quire.step.shapes import padded_lengths
from quire.step.slots import Slots, find_slots
from quire.step.units import Units, make_units, read_lengths


@takes_options(StepOptions)
def pack_step(lengths: Lengths, options: StepOptions) -> StepPlan:
    """A plan for one training step: which sequences each rank packs into each micro-step.

    No row exceeds its budget, every rank has the same number of micro-steps, every sequence is in
    one row, and the rows of a micro-step cost about the same. It is a pure function of its
    arguments: every rank computes the same plan, without communication.

    >>> plan = pack_step([5, 3, 4, 4, 2, 6], max_length=8, num_ranks=2)
    >>> [[plan.row(rank, step).tolist() for step in range(2)] for rank in range(2)]
    [[[1, 2], [0]], [[5], [3, 4]]]
    """
    sequences = read_lengths(lengths)
    units = make_units(sequences, options)
    found = find_slots(units, options)
    slot_of_piece = _ordered(found, units, options)[units.unit]
    order = np.lexsort((units.pieces.starts, units.pieces.documents, slot_of_piece))
    pieces, slot = units.pieces.take(order), slot_of_piece[order]
    num_rows = options.num_ranks * found.num_micro_steps
    costs = sums(slot, sequence_costs(pieces.lengths, options.cost), num_rows)
    used = np.bincount(slot, options.spaces(pieces.lengths), num_rows).astype(np.int64)
    row_lengths = padded_lengths(used, options)
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
