"""The packing strategies, one per file.

To add one: write ``strategies/<name>.py`` with a ``STRATEGY`` and add the name to `BUILT_IN`.
Users of the library call `register_strategy` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TypeAlias

import numpy as np

from quire.errors import InvalidOption, StrategyError, unknown_name
from quire.plan.fragments import Rows
from quire.plan.histogram import FillRuns
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions

BUILT_IN = ("best_fit", "exact_fit", "first_fit", "greedy", "tight", "wrapped")

RowNumbers: TypeAlias = Callable[[IntArray, int, PlanOptions], "IntArray | list[int]"]
"""What `register_strategy` takes: a function of the sizes, the row size and the options that
returns a row number for each size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy:
    """How fragments are placed in rows, and what the planner has to know about it."""

    place: Callable[[IntArray, int, PlanOptions], Rows]
    """Rows for fragments of these sizes, given the row size and the options."""
    keeps_order: bool = False
    """Rows hold documents in input order; ``fill`` then cuts at row ends instead of moving."""
    needs_order: bool = True
    """Expects fragments in document order; decreasing strategies sort them anyway."""
    runs: FillRuns | None = None
    """Counts rows from a histogram, which lets very many documents be planned in chunks."""
    wraps: bool = False
    """Cuts documents at the end of every row, whatever the overlong policy."""
    is_slow: bool = False
    """Searches for seconds, so comparisons skip it unless it is named."""
    function: RowNumbers | None = None
    """The registered function, to send to processes that do not have it."""


_REGISTERED: dict[str, Strategy] = {}


def find_strategy(name: str) -> Strategy:
    """The strategy with this name."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name not in BUILT_IN:
        raise unknown_name("strategy", name, strategy_names())
    strategy: Strategy = import_module(f"{__name__}.{name}").STRATEGY
    return strategy


def strategy_names() -> list[str]:
    """All names that ``strategy=`` accepts, including registered ones."""
    return sorted([*BUILT_IN, *_REGISTERED])


def quick_strategy_names() -> list[str]:
    """The strategies that plan a million documents in about a second."""
    return [name for name in strategy_names() if not find_strategy(name).is_slow]


def keeps_order(name: str) -> bool:
    """Whether rows of this strategy hold the documents in input order."""
    return find_strategy(name).keeps_order


def registered_strategy(name: str) -> RowNumbers | None:
    """The function registered under this name; None if the strategy is built in."""
    return find_strategy(name).function


def register_strategy(name: str, function: RowNumbers) -> None:
    """Add a strategy, or replace one that was registered before.

    The function receives the size of every fragment (including prefix and alignment), the size of
    a row, and the options; it returns a row number for each fragment. Rows that are too full or
    hold more than ``options.max_documents_per_row`` fragments raise `StrategyError`; unused row
    numbers are skipped. Worker processes import the function by name, so it must be defined at the
    top level of a module or script; within one process any function works.

    >>> from quire import make_plan
    >>> register_strategy("alone", lambda sizes, max_length, options: list(range(len(sizes))))
    >>> make_plan([3, 2], max_length=10, strategy="alone").num_rows
    2
    """
    if not isinstance(name, str) or not name:
        raise InvalidOption(f"a strategy's name is a non-empty string, not {name!r}")
    if name in BUILT_IN:
        raise InvalidOption(f"strategy {name!r} is built in; register yours under another name")
    if not callable(function):
        raise InvalidOption(f"strategy {name!r} is {function!r} but must be a function")

    def place(sizes: IntArray, max_length: int, options: PlanOptions) -> Rows:
        # A copy: the sizes may be the plan's own stops, and a function that sorts in place would
        # change them.
        numbers = _row_numbers(name, function(sizes.copy(), max_length, options), len(sizes))
        rows = Rows.of_row_numbers(numbers)
        _require_fit(name, rows, sizes, max_length, options)
        return rows

    _REGISTERED[name] = Strategy(place=place, function=function)


def _row_numbers(name: str, numbers: IntArray | list[int], expected: int) -> IntArray:
    try:
        array = np.asarray(numbers)
    except ValueError as error:
        raise StrategyError(f"strategy {name!r} did not return a flat list: {error}") from error
    if array.shape != (expected,) or array.dtype.kind not in "iu":
        raise StrategyError(
            f"strategy {name!r} returned {array.dtype} of shape {array.shape} but must return one "
            f"integer row number for each of {expected} fragments"
        )
    return array.astype(np.int64)


def _require_fit(
    name: str, rows: Rows, sizes: IntArray, max_length: int, options: PlanOptions
) -> None:
    used = np.add.reduceat(sizes[rows.fragments], rows.offsets[:-1], dtype=np.int64)
    cap = options.max_documents_per_row or len(sizes)
    for what, values, limit in (("tokens", used, max_length), ("fragments", rows.counts, cap)):
        if (values > limit).any():
            worst = int(np.argmax(values))
            raise StrategyError(
                f"strategy {name!r} put {values[worst]} {what} into a row that holds {limit}; "
                "respect `max_length` and `options.max_documents_per_row`"
            )
