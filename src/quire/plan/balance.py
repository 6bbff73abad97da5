"""Distributing rows over ranks and steps so that no rank waits long for another.

All ranks wait for the slowest in every step, and rows of equal length differ in attention cost: one
document of 8,192 tokens costs 64 times as much as 64 documents of 128.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
import numpy.typing as npt

from quire.errors import InvalidOption, unknown_name
from quire.ledger import Ledger, Tally
from quire.options import require_integer
from quire.plan.build import spans
from quire.plan.exchange import Exchange, whole_costs
from quire.plan.fragments import Fragments
from quire.plan.lengths import BoolArray, FloatArray, IntArray
from quire.plan.plan import Plan

REMAINDERS = ("drop", "repeat", "split")

_AT_A_TIME = 4096
"""Rows, about, between which exchanges are looked for at once."""
_REACH, _ROUNDS = 16, 3
"""How many rows of lower cost each is compared with, and how often."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Balance:
    """Which rank takes which rows in which step."""

    rows: IntArray
    """Row numbers, ``[steps, ranks, rows_per_rank]``."""
    before: float
    """Slowest rank over the mean, summed over steps, with rows in their original order."""
    after: float
    """The same for this assignment; 1.0 is perfectly even."""
    ledger: Ledger
    """Given a plan: its documents and tokens. Given only costs: rows, counted as documents."""
    plan: Plan | None = None
    """The plan that the row numbers refer to; ``remainder="split"`` makes a new one."""


def attention_costs(plan: Plan, *, per_token: float = 1.0, per_pair: float = 2e-5) -> FloatArray:
    """The cost of each row: ``per_token * tokens + per_pair * sum(length ** 2)`` over fragments.

    The default ratio is that of a transformer with hidden size h = 4,096: 24 h² operations per
    token and layer, and 2 h for each pair of tokens that attend, so 1 / (12 h) = 2e-5.

    >>> from quire import make_plan
    >>> attention_costs(make_plan([4, 2, 2], max_length=4), per_token=0, per_pair=1)
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
    """Rows assigned to ranks so that each step costs every rank about the same.

    ``rows`` is a plan, or the cost of each row. With ``window=1`` every step keeps its rows, and
    the longest-processing-time rule assigns them to ranks, and exchanges of rows between ranks
    even out the rest; a larger window may also exchange rows between its steps, which helps when
    a rank has one row per step. ``remainder`` makes the number
    of rows a multiple of ``num_ranks * rows_per_rank``: ``drop`` the last ones, ``repeat`` the
    first ones, or ``split`` rows between documents; the ledger counts the effect.

    >>> balanced = balance([9, 1, 8, 2], num_ranks=2, rows_per_rank=2)
    >>> balanced.rows.tolist(), round(balanced.before, 2), balanced.after
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
    assigned = _assign(order, costs, num_ranks, rows_per_rank, window)
    before, after = (_slowest_over_mean(costs[rows]) for rows in (in_order, assigned))
    if after > before:  # the rule is a heuristic: keep an order that happens to be more even
        assigned, after = in_order, before
    return Balance(rows=assigned, before=before, after=after, ledger=ledger, plan=plan)


def _require_cost(name: str, value: object) -> None:
    if not isinstance(value, Real) or not 0 <= float(value) < np.inf:
        raise InvalidOption(f"{name} is {value!r} but must be a finite number >= 0")


def _checked_costs(costs: npt.ArrayLike) -> FloatArray:
    try:
        array = np.asarray(costs)
    except ValueError as error:
        raise InvalidOption(f"costs cannot be read as one number per row: {error}") from error
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise InvalidOption(
            f"costs are {array.dtype} of shape {array.shape} but must be one number per row"
        )
    array = np.array(array, dtype=np.float64)
    wrong = ~np.isfinite(array) | (array < 0)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InvalidOption(f"row {first} costs {array[first]} but a cost must be finite and >= 0")
    with np.errstate(over="ignore"):
        total = array.sum()
    if not np.isfinite(total):
        raise InvalidOption(
            f"the costs of {len(array)} rows sum to {total}; scale them down, only ratios matter"
        )
    return array


def _even_costs(num_rows: int, step: int, remainder: str) -> tuple[IntArray, Ledger]:
    if remainder == "split":
        raise InvalidOption(
            "remainder='split' cuts rows between documents, which costs do not show; "
            "pass the plan instead of costs, or use remainder='drop' or 'repeat'"
        )
    order = _even_order(num_rows, step, remainder)
    emitted = min(len(order), num_rows)
    dropped = {"rank_equalize": num_rows - emitted}
    return order, Ledger(documents=Tally(input=num_rows, emitted=emitted, dropped=dropped))


def _even_order(num_rows: int, multiple: int, remainder: str) -> IntArray:
    """Row numbers whose count is a multiple: without the last ones, or with the first repeated."""
    if remainder == "repeat":
        return np.arange(num_rows + -num_rows % multiple) % max(1, num_rows)
    return np.arange(num_rows - num_rows % multiple)


def _assign(
    order: IntArray, costs: FloatArray, num_ranks: int, rows_per_rank: int, window: int
) -> IntArray:
    rows = num_ranks * rows_per_rank * window
    count = len(order) // rows
    parts = [order[: count * rows].reshape(count, rows), order[None, count * rows :]]
    assigned = [
        _assign_windows(part, costs, num_ranks, rows_per_rank) for part in parts if part.size
    ]
    return np.concatenate([*assigned, np.zeros((0, num_ranks, rows_per_rank), dtype=np.int64)])


def _assign_windows(
    windows: IntArray, costs: FloatArray, num_ranks: int, rows_per_rank: int
) -> IntArray:
    """Longest-processing-time in all windows at once; a cell is one rank's rows in one step."""
    rows = np.take_along_axis(windows, np.argsort(-costs[windows], kind="stable"), axis=1)
    count, cells = len(windows), windows.shape[1] // rows_per_rank
    loads = np.zeros((count, cells))
    held = np.zeros((count, cells), dtype=np.int64)
    assigned = np.zeros((count, cells, rows_per_rank), dtype=np.int64)
    each = np.arange(count)
    for row in rows.T:
        cell = np.argmin(np.where(held < rows_per_rank, loads, np.inf), axis=1)
        assigned[each, cell, held[each, cell]] = row
        held[each, cell] += 1
        loads[each, cell] += costs[row]
    if num_ranks > 1 and rows_per_rank > 1:
        several = max(1, _AT_A_TIME // windows.shape[1])
        parts = np.split(assigned, np.arange(several, count, several))
        assigned = np.concatenate([_exchanged(part, costs, num_ranks) for part in parts])
        loads = costs[assigned].sum(axis=2)
    return _cells_to_steps(assigned, loads, num_ranks)


def _exchanged(assigned: IntArray, costs: FloatArray, num_ranks: int) -> IntArray:
    """The cells of some windows, ``[windows, cells, rows]``, after exchanges within each window."""
    count, cells, rows_per_cell = assigned.shape
    rows, cell = assigned.ravel(), np.repeat(np.arange(count * cells), rows_per_cell)
    search = Exchange(
        np.ones((len(rows), 1), dtype=np.int64),
        whole_costs(costs[rows], count * cells),
        np.array([rows_per_cell]),
        np.repeat(np.arange(count), cells),
        num_ranks,
        reach=_REACH,
    )
    slots, _ = search.run(cell, _ROUNDS)
    exchanged: IntArray = rows[np.argsort(slots, kind="stable")].reshape(assigned.shape)
    return exchanged


def _cells_to_steps(assigned: IntArray, loads: FloatArray, num_ranks: int) -> IntArray:
    """Cells of similar load share a step; steps are sorted by their first row."""
    count, cells, rows_per_rank = assigned.shape
    by_load = np.argsort(-loads, kind="stable")
    assigned = np.take_along_axis(assigned, by_load[:, :, None], axis=1)
    steps = assigned.reshape(count, cells // num_ranks, num_ranks, rows_per_rank)
    by_first = np.argsort(steps.min(axis=(2, 3)), kind="stable")
    steps = np.take_along_axis(steps, by_first[:, :, None, None], axis=1)
    return np.concatenate(np.sort(steps))


def _slowest_over_mean(costs: FloatArray) -> float:
    loads = costs.sum(axis=2)
    mean = loads.mean(axis=1).sum()
    return float(loads.max(axis=1).sum() / mean) if mean else 1.0


def even_rows(plan: Plan, multiple: int, remainder: str) -> tuple[IntArray, Plan, Ledger]:
    """Row numbers whose count is a multiple, the plan they refer to, and its ledger."""
    if remainder == "split":
        plan = _with_more_rows(plan, -plan.num_rows % multiple)
    order = _even_order(plan.num_rows, multiple, remainder)
    if len(order) > plan.num_rows:
        return order, plan, _repeated(plan, order[plan.num_rows :])
    if len(order) < plan.num_rows:
        return order, plan, _dropped(plan, len(order))
    return order, plan, plan.ledger


def _with_more_rows(plan: Plan, extra: int) -> Plan:
    """The plan with some rows cut in two between documents, those with most fragments first."""
    if not extra:
        return plan
    counts = np.diff(plan.row_offsets)
    if extra > int((counts - 1).sum()):
        raise InvalidOption(
            f"remainder='split' needs {extra} more cuts between documents but the rows allow only "
            f"{int((counts - 1).sum())}; use remainder='drop' or 'repeat'"
        )
    offsets = plan.row_offsets
    while missing := plan.num_rows + extra + 1 - len(offsets):
        sizes = np.diff(offsets)
        most = np.argsort(-sizes, kind="stable")[:missing]
        # A row of one fragment is cut at its end, which changes nothing.
        offsets = np.union1d(offsets, offsets[most] + (sizes[most] + 1) // 2)
    padding = plan.ledger.tokens.padding + extra * plan.max_length
    ledger = replace(plan.ledger, tokens=replace(plan.ledger.tokens, padding=padding))
    return replace(plan, row_offsets=offsets, ledger=ledger)


def _repeated(plan: Plan, again: IntArray) -> Ledger:
    """The ledger with repeated rows, whose tokens count as overlap."""
    content, special, padding = _contents(plan, again)
    tokens = plan.ledger.tokens
    return replace(
        plan.ledger,
        tokens=replace(
            tokens,
            overlap=tokens.overlap + content,
            special=tokens.special + special,
            padding=tokens.padding + padding,
        ),
    )


def _dropped(plan: Plan, kept: int) -> Ledger:
    """The ledger if only the first rows are used."""
    content, special, padding = _contents(plan, np.arange(kept, plan.num_rows))
    fragments = Fragments(documents=plan.documents, starts=plan.starts, stops=plan.stops)
    edge = plan.row_offsets[kept]
    stride, stay = plan.options.stride, fragments.take(np.arange(edge))
    # Tokens of a dropped row that a kept row repeats are not lost.
    new = content - int(fragments.overlaps(stride).sum() - stay.overlaps(stride).sum())
    stays = np.zeros(plan.ledger.documents.input, dtype=bool)
    stays[plan.documents[:edge]] = True
    lost = np.unique(plan.documents[edge:][~stays[plan.documents[edge:]]])
    documents, tokens = plan.ledger.documents, plan.ledger.tokens
    return Ledger(
        documents=replace(
            documents,
            emitted=documents.emitted - len(lost),
            dropped={**documents.dropped, "rank_equalize": len(lost)},
        ),
        tokens=replace(
            tokens,
            emitted=tokens.emitted - new,
            dropped={**tokens.dropped, "rank_equalize": new},
            overlap=tokens.overlap - (content - new),
            special=tokens.special - special,
            padding=tokens.padding - padding,
        ),
    ).check()


def _contents(plan: Plan, rows: IntArray) -> tuple[int, int, int]:
    """Content, special and padding tokens in some rows."""
    counts = np.diff(plan.row_offsets)[rows]
    special = int(counts.sum()) * plan.options.prefix
    if plan.options.ends_with_eos:
        special += int(_holds_eos(plan)[spans(plan.row_offsets[rows], counts)].sum())
    tokens = int(plan.row_lengths[rows].sum())
    return tokens - special, special, len(rows) * plan.max_length - tokens


def _holds_eos(plan: Plan) -> BoolArray:
    """Which fragments end with an added EOS: the last one of each document.

    A plan does not record the documents' lengths. Where it lacks some EOS, the longest last
    fragments are taken to lack it: documents are truncated to full fragments, and the fragment
    before a dropped one is full.
    """
    order = np.lexsort((plan.stops, plan.documents))
    is_last = np.diff(plan.documents[order], append=-1) != 0
    last = order[is_last]
    shortest_first = np.argsort((plan.stops - plan.starts)[last], kind="stable")
    holds = np.zeros(plan.num_fragments, dtype=bool)
    holds[last[shortest_first[: plan.num_eos]]] = True
    return holds
