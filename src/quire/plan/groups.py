"""Groups of documents that share a row: preference pairs, completions of one prompt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quire.errors import InvalidOption, OversizedDocument
from quire.options.names import option, setting
from quire.plan.build import build_plan, spans
from quire.plan.fragments import numbered_by_first, whole_documents
from quire.plan.lengths import IntArray, Lengths, as_lengths
from quire.plan.options import PlanOptions
from quire.plan.plan import Plan
from quire.plan.planner import plan_documents
from quire.plan.strategies import find_strategy


def plan_groups(lengths: Lengths, groups: IntArray, options: PlanOptions) -> Plan:
    """A plan in which documents with the same group number share a row, uncut.

    Groups are ordered by their first documents. A group longer than a row is dropped as a whole
    (``group_too_long`` in the ledger); with ``overlong="error"`` it raises.

    >>> plan = plan_groups([3, 3, 4, 4], np.array([0, 1, 0, 1]), PlanOptions(max_length=8))
    >>> [[fragment.document for fragment in row] for row in plan]
    [[0, 2], [1, 3]]
    """
    lengths = as_lengths(lengths)
    _require_possible(lengths, groups, options)
    whole = whole_documents(lengths, options)
    group = numbered_by_first(groups[whole.documents])
    members, sizes = np.argsort(group, kind="stable"), np.bincount(group)
    spaces = np.bincount(group, options.spaces(whole.stops)).astype(np.int64)
    _require_fit(spaces, whole.documents[members], sizes, options)
    by_group = _plan_of_groups(spaces, options)
    chosen = spans((np.cumsum(sizes) - sizes)[by_group.documents], sizes[by_group.documents])
    offsets = np.append(0, np.cumsum(sizes[by_group.documents]))[by_group.row_offsets]
    left_out = np.setdiff1d(np.arange(len(whole)), members[chosen])
    return build_plan(
        lengths,
        whole.take(members[chosen]),
        offsets,
        replace(options, overlong="split"),  # a group is kept or dropped as a whole
        (whole.take(left_out), "group_too_long"),
    )


def _plan_of_groups(spaces: IntArray, options: PlanOptions) -> Plan:
    """Rows of groups; ``greedy`` replaces a strategy that would cut a group at a row's end."""
    strategy = "greedy" if find_strategy(options.strategy).wraps else options.strategy
    whole_groups = PlanOptions(max_length=options.row_space, strategy=strategy, overlong="drop")
    return plan_documents(spaces, whole_groups)


def _require_fit(
    spaces: IntArray, members: IntArray, sizes: IntArray, options: PlanOptions
) -> None:
    if options.overlong == "error" and (spaces > options.row_space).any():
        longest = int(np.argmax(spaces))
        first = members[int(sizes[:longest].sum())]
        raise OversizedDocument(
            f"the group of document {first} takes {spaces[longest]} tokens but a row holds "
            f"{options.row_space}; drop such groups ({setting('overlong', 'drop')}) or raise "
            f"{option('max_length')}"
        )


def _require_possible(lengths: IntArray, groups: IntArray, options: PlanOptions) -> None:
    if options.max_documents_per_row is not None:
        raise InvalidOption(
            f"max_documents_per_row={options.max_documents_per_row} cannot be combined with "
            "groups, which share a row whatever their number; leave one of the two out"
        )
    if len(groups) != len(lengths):
        raise InvalidOption(f"there are {len(groups)} group numbers for {len(lengths)} documents")
