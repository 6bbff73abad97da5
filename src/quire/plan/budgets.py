"""Rows within several budgets: tokens, and other measures of documents that are never cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from quire.plan.build import build_plan
from quire.plan.fragments import Rows, whole_documents
from quire.plan.lengths import IntArray, Lengths, as_lengths
from quire.plan.options import PlanOptions
from quire.plan.plan import Plan
from quire.plan.planner import Supervised
from quire.plan.search.columns import require_solver
from quire.plan.search.several_budgets import pack_vectors


def plan_within_budgets(
    lengths: Lengths,
    measures: IntArray,
    budgets: Sequence[int],
    options: PlanOptions,
    supervised: Supervised | None = None,
) -> Plan:
    """The plan of documents that also have ``measures``, a column for each of the ``budgets``.

    No document may exceed a row or a budget. The strategy ``tight`` searches for the fewest rows,
    any other one uses best-fit.

    >>> images = np.array([[2], [1], [2], [1]])
    >>> plan = plan_within_budgets([2, 2, 2, 2], images, [3], PlanOptions(max_length=8))
    >>> [[fragment.document for fragment in row] for row in plan]
    [[0, 1], [2, 3]]
    """
    lengths = as_lengths(lengths)
    whole = whole_documents(lengths, options)
    kept = np.ones(len(whole), dtype=bool) if supervised is None else supervised(whole)
    left_out, whole = whole.take(np.flatnonzero(~kept)), whole.take(np.flatnonzero(kept))
    in_rows = whole
    offsets: IntArray = np.zeros(1, dtype=np.int64)
    if len(whole):
        spaces = options.spaces(whole.stops).astype(np.int64)
        sizes = np.column_stack([spaces, measures[whole.documents]])
        rows = Rows.of_row_numbers(_row_numbers(sizes, [options.row_space, *budgets], options))
        in_rows, offsets = whole.take(rows.fragments), rows.offsets
    return build_plan(
        lengths, in_rows, offsets, replace(options, overlong="split"), (left_out, "unsupervised")
    )


def _row_numbers(sizes: IntArray, budgets: Sequence[int], options: PlanOptions) -> IntArray:
    searches = options.strategy == "tight"
    if searches:
        require_solver()
    return pack_vectors(
        sizes,
        budgets,
        max_items=options.max_documents_per_row,
        effort="full" if searches else "fast",
    )
