"""The table of strategies, and `make_plan`: lengths in, the plan out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from quire.errors import InvalidOption, StrategyError, unknown_name
from quire.plan import stretches
from quire.plan.best_fit import best_fit, best_fit_runs
from quire.plan.fill import close_gaps, wrap
from quire.plan.finish import finish
from quire.plan.first_fit import first_fit, first_fit_runs
from quire.plan.fragments import Fragments, apply_overlong, whole_documents
from quire.plan.greedy import greedy
from quire.plan.lengths import BoolArray, IntArray, Lengths, as_lengths
from quire.plan.options import Overlong, PlanOptions
from quire.plan.plan import Plan
from quire.plan.rows import Rows
from quire.plan.stretches import Deal, LaidOut

RowNumbers: TypeAlias = Callable[[IntArray, int, PlanOptions], "IntArray | list[int]"]
"""What `register_strategy` takes: sizes, capacity and options in, a row number per size out."""

Supervised: TypeAlias = Callable[[Fragments], BoolArray]
"""Says of each fragment whether any of its labels is trained."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy:
    """One entry of the table."""

    place: Callable[[IntArray, int, PlanOptions], Rows]
    keeps_order: bool = False
    """Rows hold documents in input order; ``fill`` then cuts at row ends instead of moving."""
    wants_order: bool = True
    """Gets fragments in document order; the decreasing strategies need an order for ties alone."""
    deal: Deal | None = None
    """Tells the number of rows from the histogram: very many documents go stretch by stretch."""
    wraps: bool = False
    """Cuts documents at every row's end, whatever the policy."""
    is_slow: bool = False
    """Searches for seconds, so that a comparison leaves it out unless it is asked for."""
    function: RowNumbers | None = None
    """What was registered, for processes that do not know it."""


def _tight(sizes: IntArray, capacity: int, options: PlanOptions) -> Rows:
    from quire.plan.tight import tight  # scipy is an extra

    return tight(sizes, capacity, options)


_STRATEGIES: dict[str, Strategy] = {
    "best_fit": Strategy(place=best_fit, wants_order=False, deal=best_fit_runs),
    "first_fit": Strategy(place=first_fit, wants_order=False, deal=first_fit_runs),
    "greedy": Strategy(place=greedy, keeps_order=True),
    "tight": Strategy(place=_tight, wants_order=False, is_slow=True),
    "wrapped": Strategy(place=greedy, keeps_order=True, wraps=True),
}
_BUILT_IN = frozenset(_STRATEGIES)


def strategy_names() -> list[str]:
    """All names that ``strategy=`` takes, registered ones included."""
    return sorted(_STRATEGIES)


def quick_strategy_names() -> list[str]:
    """The strategies that plan a million documents in about a second."""
    return [name for name in strategy_names() if not _STRATEGIES[name].is_slow]


def keeps_order(name: str) -> bool:
    """Whether rows of this strategy hold the documents in input order."""
    return _strategy(name).keeps_order


def register_strategy(name: str, function: RowNumbers) -> None:
    """Add a strategy to the table, or replace one that was registered before.

    The function gets the size of every fragment (prefix and alignment included), the size of a row
    and the options; it returns a row number for each fragment. Rows that are too full or hold more
    than ``options.max_documents_per_row`` fragments are refused; a number left out is no row.
    Worker processes get the function by its name, so it must be defined at the top of a module or
    script; in one process any function will do.

    >>> register_strategy("alone", lambda sizes, capacity, options: list(range(len(sizes))))
    >>> make_plan([3, 2], capacity=10, strategy="alone").num_rows
    2
    """
    if not isinstance(name, str) or not name:
        raise InvalidOption(f"a strategy's name is a non-empty string, not {name!r}")
    if name in _BUILT_IN:
        raise InvalidOption(f"strategy {name!r} is built in; register yours under another name")
    if not callable(function):
        raise InvalidOption(f"strategy {name!r} is {function!r} but must be a function")

    def place(sizes: IntArray, capacity: int, options: PlanOptions) -> Rows:
        # A copy: the sizes may be the plan's own stops, which a strategy that sorts would change.
        numbers = _row_numbers(name, function(sizes.copy(), capacity, options), len(sizes))
        rows = Rows.of_row_numbers(numbers)
        _require_fit(name, rows, sizes, capacity, options)
        return rows

    _STRATEGIES[name] = Strategy(place=place, function=function)


def registered_strategy(name: str) -> RowNumbers | None:
    """The function that was registered under this name; None where the strategy is built in."""
    return _strategy(name).function


def make_plan(
    lengths: Lengths,
    capacity: int,
    strategy: str = "best_fit",
    *,
    overlong: Overlong = "split",
    stride: int = 0,
    prefix: int = 0,
    min_length: int = 1,
    min_fragment: int = 1,
    max_documents_per_row: int | None = None,
    align: int = 1,
    shuffle: bool = False,
    seed: int | None = 0,
) -> Plan:
    """The plan that puts documents of these lengths into rows of this capacity.

    Options are explained at `PlanOptions`. Empty documents stand nowhere and are counted.

    >>> plan = make_plan([6, 3, 5, 0], capacity=8)
    >>> [[fragment.document for fragment in row] for row in plan]
    [[0], [2, 1]]
    >>> plan.utilization, plan.ledger.documents.dropped["empty"]
    (0.875, 1)
    """
    options = PlanOptions(
        capacity=capacity,
        strategy=strategy,
        overlong=overlong,
        stride=stride,
        prefix=prefix,
        min_length=min_length,
        min_fragment=min_fragment,
        max_documents_per_row=max_documents_per_row,
        align=align,
        shuffle=shuffle,
        seed=seed,
    )
    return plan_documents(lengths, options)


def plan_documents(
    lengths: Lengths, options: PlanOptions, supervised: Supervised | None = None
) -> Plan:
    """`make_plan`, for callers that have the options in one piece.

    ``supervised`` says of fragments whether the model learns anything from them; those that teach
    nothing stand nowhere and are counted.
    """
    chosen = _strategy(options.strategy)
    lengths = as_lengths(lengths)
    if supervised is None and (stretched := _stretched(lengths, chosen, options)):
        return finish(lengths, *stretched, options)
    in_rows, offsets, unsupervised = _lay_out(lengths, chosen, options, supervised)
    return finish(lengths, in_rows, offsets, options, (unsupervised, "unsupervised"))


def _stretched(lengths: IntArray, strategy: Strategy, options: PlanOptions) -> LaidOut | None:
    """The rows of very many documents, where the strategy has a way for them."""
    if strategy.deal is None or options.overlong == "fill" or len(lengths) <= stretches.MANY:
        return None

    def lay_out(part: IntArray) -> LaidOut:
        return _lay_out(part, strategy, options, None)[:2]

    return stretches.lay_out_stretches(lengths, options, lay_out, strategy.place, strategy.deal)


def _strategy(name: str) -> Strategy:
    if name not in _STRATEGIES:
        raise unknown_name("strategy", name, _STRATEGIES)
    return _STRATEGIES[name]


def _lay_out(
    lengths: IntArray, strategy: Strategy, options: PlanOptions, supervised: Supervised | None
) -> tuple[Fragments, IntArray, Fragments]:
    """Fragments in row order, the row offsets, and the fragments that were left out."""
    fragments = whole_documents(lengths, options)
    fill = options.overlong == "fill"
    pours = strategy.wraps or (strategy.keeps_order and fill)
    cuts_itself = pours and options.overlong in ("split", "fill")
    if not cuts_itself:
        fragments = apply_overlong(fragments, options)  # and the whole documents are let go
    if strategy.wants_order:
        fragments = fragments.in_document_order()
    fragments, left_out = _divide(fragments, supervised)
    if not len(fragments):
        return fragments, np.zeros(1, dtype=np.int64), left_out
    if not pours:
        sizes = options.spaces(fragments.lengths)
        rows = strategy.place(sizes, options.row_space, options)
        if not fill:
            return fragments.take(rows.fragments), rows.offsets, left_out
    in_rows, offsets = wrap(fragments, options) if pours else close_gaps(fragments, rows, options)
    return _without_new_pieces(in_rows, offsets, left_out, supervised)


def _divide(fragments: Fragments, supervised: Supervised | None) -> tuple[Fragments, Fragments]:
    """The fragments that teach something, and the others."""
    nothing = fragments.take(np.zeros(0, dtype=np.int64))
    if supervised is None or not len(fragments) or (wanted := supervised(fragments)).all():
        return fragments, nothing
    return fragments.take(np.flatnonzero(wanted)), fragments.take(np.flatnonzero(~wanted))


def _without_new_pieces(
    in_rows: Fragments, offsets: IntArray, left_out: Fragments, supervised: Supervised | None
) -> tuple[Fragments, IntArray, Fragments]:
    """A cut that closes a gap may leave a piece that teaches nothing: that goes, too."""
    if supervised is None or (wanted := supervised(in_rows)).all():
        return in_rows, offsets, left_out
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[wanted]
    left_out = left_out.joined(in_rows.take(np.flatnonzero(~wanted)))
    return in_rows.take(np.flatnonzero(wanted)), Rows.of_row_numbers(row).offsets, left_out


def _row_numbers(name: str, numbers: IntArray | list[int], expected: int) -> IntArray:
    try:
        array = np.asarray(numbers)
    except ValueError as error:
        raise StrategyError(f"strategy {name!r} returned no flat list: {error}") from error
    if array.shape != (expected,) or array.dtype.kind not in "iu":
        raise StrategyError(
            f"strategy {name!r} returned {array.dtype} of shape {array.shape} but one integer row "
            f"number for each of {expected} fragments is needed"
        )
    return array.astype(np.int64)


def _require_fit(
    name: str, rows: Rows, sizes: IntArray, capacity: int, options: PlanOptions
) -> None:
    used = np.add.reduceat(sizes[rows.fragments], rows.offsets[:-1], dtype=np.int64)
    cap = options.max_documents_per_row or len(sizes)
    for what, values, limit in (("tokens", used, capacity), ("fragments", rows.counts, cap)):
        if (values > limit).any():
            worst = int(np.argmax(values))
            raise StrategyError(
                f"strategy {name!r} put {values[worst]} {what} into a row that holds {limit}; "
                f"mind `capacity` and `options.max_documents_per_row`"
            )
