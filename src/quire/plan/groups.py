"""Groups of documents that stand in the same row: preference pairs, completions of one prompt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quire.errors import InvalidOption
from quire.plan.finish import finish, spans
from quire.plan.fragments import whole_documents
from quire.plan.lengths import IntArray, Lengths, as_lengths
from quire.plan.options import PlanOptions
from quire.plan.plan import Plan
from quire.plan.strategies import plan_documents


def plan_groups(lengths: Lengths, groups: IntArray, options: PlanOptions) -> Plan:
    """A plan in which documents with the same group number share a row, uncut.

    A group that is longer than a row is dropped whole, as ``group_too_long``.

    >>> plan = plan_groups([3, 3, 4, 4], np.array([0, 1, 0, 1]), PlanOptions(capacity=8))
    >>> [[fragment.document for fragment in row] for row in plan]
    [[0, 2], [1, 3]]
    """
    lengths = as_lengths(lengths)
    _require_possible(lengths, groups, options)
    whole = whole_documents(lengths)
    _, group = np.unique(groups[whole.documents], return_inverse=True)
    sizes = np.bincount(group)
    spaces = options.spaces(whole.stops.astype(np.int64))
    by_group = _plan_of_groups(np.bincount(group, weights=spaces).astype(np.int64), options)
    members = np.argsort(group, kind="stable")
    chosen = spans((np.cumsum(sizes) - sizes)[by_group.documents], sizes[by_group.documents])
    offsets = np.append(0, np.cumsum(sizes[by_group.documents]))[by_group.row_offsets]
    left_out = np.setdiff1d(np.arange(len(whole)), members[chosen])
    return finish(
        lengths,
        whole.take(members[chosen]),
        offsets,
        replace(options, overlong="split"),  # groups are whole or out: nothing is cut or truncated
        (whole.take(left_out), "group_too_long"),
    )


def _plan_of_groups(spaces: IntArray, options: PlanOptions) -> Plan:
    """Rows of groups; ``wrapped`` would cut one at a row's end, so ``greedy`` stands in for it."""
    strategy = "greedy" if options.strategy == "wrapped" else options.strategy
    terms = PlanOptions(capacity=options.row_space, strategy=strategy, overlong="drop")
    return plan_documents(spaces, terms)


def _require_possible(lengths: IntArray, groups: IntArray, options: PlanOptions) -> None:
    if options.max_documents_per_row is not None:
        raise InvalidOption(
            f"max_documents_per_row={options.max_documents_per_row} cannot be combined with "
            "groups, which stand in one row whatever their number; leave one of the two out"
        )
    if len(groups) != len(lengths):
        raise InvalidOption(f"there are {len(groups)} group numbers for {len(lengths)} documents")
