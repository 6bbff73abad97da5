"""Rows to ranks and steps, so that no rank waits long for another.

All ranks of a step wait for the slowest, and rows of equal length differ in attention cost: one
document of 8,192 tokens costs 64 times what 64 documents of 128 do.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, unknown_name
from quire.ledger import Ledger, Tally
from quire.options import require_integer
from quire.plan.lengths import IntArray
from quire.plan.plan import Plan
from quire.plan.remainder import REMAINDERS, even_rows

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Balance:
    """Which rank takes which rows in which step."""

    rows: IntArray
    """Row numbers, ``[steps, ranks, rows_per_rank]``."""
    before: float
    """Slowest rank over the mean, summed over steps, with rows dealt in order."""
    after: float
    """The same with rows dealt as here: 1.0 is even."""
    ledger: Ledger
    """With a plan: its documents and tokens. With costs alone: rows, counted as documents."""
    plan: Plan | None = None
    """The plan that the row numbers speak of; ``remainder="split"`` makes a new one."""


def attention_costs(plan: Plan, *, per_token: float = 1.0, per_pair: float = 2e-5) -> FloatArray:
    """The cost of each row: ``per_token * tokens + per_pair * sum(length ** 2)`` over fragments.

    The default ratio is that of a transformer 4,096 wide: 24 h² operations per token and layer
    beside 2 h for each pair of tokens that attend, so 1 / (12 h) = 2e-5.

    >>> from quire import make_plan
    >>> attention_costs(make_plan([4, 2, 2], capacity=4), per_token=0, per_pair=1)
    array([16.,  8.])
    """
    _require_cost("per_token", per_token)
    _require_cost("per_pair", per_pair)
    lengths = np.subtract(plan.stops, plan.starts, dtype=np.float64) + plan.options.prefix
    costs = per_token * lengths + per_pair * lengths**2
    by_row: FloatArray = np.add.reduceat(costs, plan.row_offsets[:-1])
    return by_row


def balance(
    rows: Plan | npt.ArrayLike,
    num_ranks: int,
    rows_per_rank: int = 1,
    *,
    window: int = 1,
    remainder: str = "drop",
    per_token: float = 1.0,
    per_pair: float = 2e-5,
) -> Balance:
    """Rows dealt to ranks so that each step costs every rank about the same.

    ``rows`` is a plan, or the cost of each row. In a window of one step the rows of a step stay
    what they are, and the longest-processing-time rule deals them to ranks; a larger window may
    also exchange rows between its steps, which is what helps when a rank has one row a step.
    ``remainder`` makes the number of rows a multiple of ``num_ranks * rows_per_rank``: ``drop`` the
    last ones, ``repeat`` the first ones, or ``split`` rows between documents; the ledger counts it.

    >>> dealt = balance([9, 1, 8, 2], num_ranks=2, rows_per_rank=2)
    >>> dealt.rows.tolist(), round(dealt.before, 2), dealt.after
    ([[[0, 1], [2, 3]]], 1.0, 1.0)
    """
    num_ranks = require_integer("num_ranks", num_ranks, 1)
    rows_per_rank = require_integer("rows_per_rank", rows_per_rank, 1)
    window = require_integer("window", window, 1)
    if remainder not in REMAINDERS:
        raise unknown_name("remainder policy", remainder, REMAINDERS)
    step = num_ranks * rows_per_rank
    if isinstance(rows, Plan):
        order, plan, ledger = even_rows(rows, step, remainder)
        costs = attention_costs(plan, per_token=per_token, per_pair=per_pair)
    else:
        plan, costs = None, _checked_costs(rows)
        order, ledger = _even_costs(len(costs), step, remainder)
    in_order = order.reshape(len(order) // step, num_ranks, rows_per_rank)
    dealt = _deal(order, costs, num_ranks, rows_per_rank, window)
    before, after = (_slowest_over_mean(costs[rows]) for rows in (in_order, dealt))
    if after > before:  # the rule is a heuristic: what was even by chance stays as it is
        dealt, after = in_order, before
    return Balance(
        rows=dealt,
        before=before,
        after=after,
        ledger=ledger,
        plan=plan,
    )


def _require_cost(name: str, value: object) -> None:
    if not isinstance(value, Real) or not 0 <= float(value) < np.inf:
        raise InvalidOption(f"{name} is {value!r} but a cost is a finite number >= 0")


def _checked_costs(costs: npt.ArrayLike) -> FloatArray:
    try:
        array = np.asarray(costs)
    except ValueError as error:
        raise InvalidOption(f"costs cannot be read as one number a row: {error}") from error
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise InvalidOption(
            f"costs are {array.dtype} of shape {array.shape} but one number a row is needed"
        )
    array = np.array(array, dtype=np.float64)
    wrong = ~np.isfinite(array) | (array < 0)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InvalidOption(f"row {first} costs {array[first]} but a cost is finite and >= 0")
    return array


def _even_costs(num_rows: int, step: int, remainder: str) -> tuple[IntArray, Ledger]:
    if remainder == "split":
        raise InvalidOption(
            "remainder='split' cuts rows between documents, which costs alone do not show; "
            "pass the plan instead of costs, or use remainder='drop' or 'repeat'"
        )
    surplus = num_rows % step
    if remainder == "repeat":
        order = np.arange(num_rows + -num_rows % step) % max(1, num_rows)
        return order, Ledger(documents=Tally(input=num_rows, emitted=num_rows))
    dropped = {"rank_equalize": surplus}
    tally = Tally(input=num_rows, emitted=num_rows - surplus, dropped=dropped)
    return np.arange(num_rows - surplus), Ledger(documents=tally)


def _deal(
    order: IntArray, costs: FloatArray, num_ranks: int, rows_per_rank: int, window: int
) -> IntArray:
    rows = num_ranks * rows_per_rank * window
    count = len(order) // rows
    parts = [order[: count * rows].reshape(count, rows), order[None, count * rows :]]
    dealt = [_deal_windows(part, costs, num_ranks, rows_per_rank) for part in parts if part.size]
    return np.concatenate([*dealt, np.zeros((0, num_ranks, rows_per_rank), dtype=np.int64)])


def _deal_windows(
    windows: IntArray, costs: FloatArray, num_ranks: int, rows_per_rank: int
) -> IntArray:
    """Longest-processing-time in all windows at once; a cell is one rank's rows of one step."""
    rows = np.take_along_axis(windows, np.argsort(-costs[windows], kind="stable"), axis=1)
    count, cells = len(windows), windows.shape[1] // rows_per_rank
    loads = np.zeros((count, cells))
    held = np.zeros((count, cells), dtype=np.int64)
    dealt = np.zeros((count, cells, rows_per_rank), dtype=np.int64)
    each = np.arange(count)
    for row in rows.T:
        cell = np.argmin(np.where(held < rows_per_rank, loads, np.inf), axis=1)
        dealt[each, cell, held[each, cell]] = row
        held[each, cell] += 1
        loads[each, cell] += costs[row]
    return _cells_to_steps(dealt, loads, num_ranks)


def _cells_to_steps(dealt: IntArray, loads: FloatArray, num_ranks: int) -> IntArray:
    """Cells of like load share a step; steps come by their first row, to keep the order roughly."""
    count, cells, rows_per_rank = dealt.shape
    by_load = np.argsort(-loads, kind="stable")
    dealt = np.take_along_axis(dealt, by_load[:, :, None], axis=1)
    steps = dealt.reshape(count, cells // num_ranks, num_ranks, rows_per_rank)
    by_first = np.argsort(steps.min(axis=(2, 3)), kind="stable")
    steps = np.take_along_axis(steps, by_first[:, :, None, None], axis=1)
    return np.concatenate(np.sort(steps))


def _slowest_over_mean(costs: FloatArray) -> float:
    loads = costs.sum(axis=2)
    mean = loads.mean(axis=1).sum()
    return float(loads.max(axis=1).sum() / mean) if mean else 1.0
