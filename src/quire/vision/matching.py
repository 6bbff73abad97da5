"""Which samples of a buffer stand in a pack together: best-fit decreasing, and its version.

Where images, patches or samples have budgets beside tokens, or a whole epoch is grouped at once, it
is `quire.plan.vectors` that groups.

The packages that others use for this changed their heuristic between releases, and with it every
pack; ours is this project's own planner, and `MATCHING_VERSION` is part of a saved state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeVar

import numpy as np

from quire.errors import InvalidLengths, unknown_name
from quire.options import require_integer
from quire.plan.fragments import Rows
from quire.plan.lengths import IntArray, as_lengths
from quire.plan.options import PlanOptions
from quire.plan.strategies.best_fit import FEW, best_fit, best_fit_few
from quire.plan.vectors import pack_vectors
from quire.vision.budgets import Budgets

MATCHING_VERSION = 1
"""Counts up whenever the same buffer would be grouped in another way."""

Item = TypeVar("Item")


def calculate_matched_group(
    sequences: Sequence[tuple[Item, int]],
    packing_length: int,
    is_finished: bool = True,
    strategy: str = "binpack",
) -> tuple[list[list[tuple[Item, int]]], list[tuple[Item, int]]]:
    """Groups of (sample, length) pairs, and the last group to carry over if it is not yet full.

    The name, the parameters and the two strategies are ms-swift's: ``binpack`` is best-fit
    decreasing, ``sequential`` keeps the input's order. A group has at most ``packing_length``
    tokens; a longer sequence becomes a group of its own. Nothing is carried once ``is_finished``.

    >>> sizes = [30, 30, 20, 60, 50, 10]
    >>> groups, carried = calculate_matched_group(list(zip("abcdef", sizes)), 80, False)
    >>> groups
    [[('d', 60), ('c', 20)], [('e', 50), ('a', 30)]]
    >>> carried
    [('b', 30), ('f', 10)]
    """
    require_integer("packing_length", packing_length, 1)
    if strategy not in _GROUP:
        raise unknown_name("strategy", strategy, _GROUP)
    sizes = as_lengths([length for _, length in sequences]).astype(np.int64)
    if len(sizes) and not sizes.min():
        raise InvalidLengths(
            f"sequence {int(sizes.argmin())} has no tokens; leave out sequences that are empty"
        )
    groups = _GROUP[strategy](sizes, packing_length)
    is_open = bool(groups) and int(sizes[groups[-1]].sum()) < packing_length
    carried = groups.pop() if is_open and not is_finished else []
    chosen = [[sequences[item] for item in group] for group in groups]
    return chosen, [sequences[item] for item in carried]


def _best_fit_groups(sizes: IntArray, packing_length: int) -> list[list[int]]:
    oversized = sizes > packing_length
    alone = [[item] for item in np.flatnonzero(oversized).tolist()]
    fitting = np.flatnonzero(~oversized)
    groups = group_rows(sizes[fitting].reshape(-1, 1), Budgets(tokens=packing_length))
    return alone + [fitting[group].tolist() for group in groups]


def _next_fit_groups(sizes: IntArray, packing_length: int) -> list[list[int]]:
    """Groups in the order of the input: one is open, and closed by what does not fit into it."""
    groups: list[list[int]] = []
    room = 0
    for item, size in enumerate(sizes.tolist()):
        if size > room:
            groups.append([])
            room = packing_length
        groups[-1].append(item)
        room -= size
    return groups


_GROUP: Mapping[str, Callable[[IntArray, int], list[list[int]]]] = MappingProxyType(
    {"binpack": _best_fit_groups, "sequential": _next_fit_groups}
)


def group_rows(
    sizes: IntArray,
    budgets: Budgets,
    num_documents: IntArray | None = None,
    search_steps: int = 0,
) -> list[list[int]]:
    """The items of every group, in the order in which the groups were opened.

    ``sizes`` has a row for each item and a column for each of ``budgets.names``; an item is one
    sample, or ``num_documents`` of them that stay together. With ``search_steps`` for each item
    the pattern program looks for fewer groups than best-fit makes.
    """
    if not len(sizes):
        return []
    cap = budgets.documents
    one = not search_steps and len(budgets.names) == 1 and (cap is None or num_documents is None)
    if one and len(sizes) <= FEW:
        return best_fit_few(sizes[:, 0].tolist(), budgets.tokens, cap)
    if one:
        options = PlanOptions(max_length=budgets.tokens, max_documents_per_row=cap)
        rows = best_fit(sizes[:, 0], budgets.tokens, options)
    else:
        rows = _vector_rows(sizes, budgets, num_documents, search_steps * len(sizes))
    items: list[int] = rows.fragments.tolist()
    ends: list[int] = rows.offsets.tolist()
    return [items[first:end] for first, end in pairwise(ends)]


def _vector_rows(
    sizes: IntArray, budgets: Budgets, num_documents: IntArray | None, work: int
) -> Rows:
    cap, limits = budgets.documents, budgets.limits
    if cap is not None:  # one more thing, of which every sample takes one
        each = np.ones(len(sizes), dtype=np.int64) if num_documents is None else num_documents
        sizes, limits = np.column_stack([sizes, each]), (*limits, cap)
    effort: Literal["fast", "full"] = "full" if work else "fast"
    return Rows.of_row_numbers(pack_vectors(sizes, limits, effort=effort, work=work))
