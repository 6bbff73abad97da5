"""A number of rows that every rank gets its share of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quire.errors import InvalidOption
from quire.ledger import Ledger
from quire.plan.fragments import Fragments
from quire.plan.lengths import IntArray
from quire.plan.plan import Plan

REMAINDERS = ("drop", "repeat", "split")


def even_rows(plan: Plan, multiple: int, remainder: str) -> tuple[IntArray, Plan, Ledger]:
    """Row numbers whose count is a multiple, the plan that they speak of, and its ledger."""
    rows = np.arange(plan.num_rows)
    if not plan.num_rows % multiple:
        return rows, plan, plan.ledger
    if remainder == "split":
        plan = _with_more_rows(plan, -plan.num_rows % multiple)
        return np.arange(plan.num_rows), plan, plan.ledger
    if remainder == "repeat":
        rows = np.arange(plan.num_rows - plan.num_rows % -multiple) % plan.num_rows
        return rows, plan, _repeated(plan, rows[plan.num_rows :])
    kept = rows[: plan.num_rows - plan.num_rows % multiple]
    return kept, plan, _dropped(plan, len(kept))


def _with_more_rows(plan: Plan, extra: int) -> Plan:
    """The plan with some rows cut in two between documents, the fullest of fragments first."""
    counts = np.diff(plan.row_offsets)
    if extra > int((counts - 1).sum()):
        raise InvalidOption(
            f"remainder='split' needs {extra} more rows but only {int((counts - 1).sum())} cuts "
            "between documents are left; use remainder='drop' or 'repeat'"
        )
    offsets = plan.row_offsets
    while missing := plan.num_rows + extra + 1 - len(offsets):
        sizes = np.diff(offsets)
        most = np.argsort(-sizes, kind="stable")[:missing]
        # A row of one fragment is cut at its end, where it ends already.
        offsets = np.union1d(offsets, offsets[most] + (sizes[most] + 1) // 2)
    padding = plan.ledger.tokens.padding + extra * plan.capacity
    ledger = replace(plan.ledger, tokens=replace(plan.ledger.tokens, padding=padding))
    return replace(plan, row_offsets=offsets, ledger=ledger)


def _repeated(plan: Plan, again: IntArray) -> Ledger:
    """Rows that are emitted twice count as overlap: their tokens are not new."""
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
    """The ledger when only the first rows are used."""
    content, special, padding = _contents(plan, np.arange(kept, plan.num_rows))
    fragments = Fragments(documents=plan.documents, starts=plan.starts, stops=plan.stops)
    edge = plan.row_offsets[kept]
    stride, stay = plan.options.stride, fragments.take(np.arange(edge))
    # What a row that stays repeats of one that leaves is not lost.
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
    """Content, prefix tokens and empty places of some rows."""
    fragments = int(np.diff(plan.row_offsets)[rows].sum())
    special = fragments * plan.options.prefix
    tokens = int(plan.row_lengths[rows].sum())
    return tokens - special, special, len(rows) * plan.capacity - tokens
