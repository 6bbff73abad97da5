"""The figures that all packed rows have: lengths, fill, fragments per row, attention cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from quire.plan import balance
from quire.report.distributions import counts_of, even_bins, length_bins, summary
from quire.report.options import ReportOptions
from quire.verify.output.shards import Fragments, Ints


def row_figures(fragments: Fragments, max_length: int, options: ReportOptions) -> dict[str, Any]:
    """The distributions of rows and of their fragments."""
    documents, row_lengths = _document_lengths(fragments), fragments.row_lengths()
    return {
        "lengths": length_bins(documents, fragments.sizes),
        "document_lengths": None if documents is None else summary(documents),
        "fragment_lengths": summary(fragments.sizes),
        "fill": even_bins(row_lengths, max_length, num_bins=50),
        "fill_summary": summary(row_lengths / max_length),
        "fragments_per_row": counts_of(fragments.per_row),
        "attention": _attention(fragments, max_length, options),
    }


def _document_lengths(fragments: Fragments) -> Ints | None:
    """Tokens of each document in all rows, specials and overlaps included."""
    if fragments.documents is None:
        return None
    _, members = np.unique(fragments.documents, return_inverse=True)
    return np.bincount(members, weights=fragments.sizes).astype(np.int64)


def _attention(fragments: Fragments, max_length: int, options: ReportOptions) -> dict[str, Any]:
    """Pairs of tokens that attend to each other, and how evenly ranks share their cost."""
    row_lengths, num_rows = fragments.row_lengths(), len(fragments.per_row)
    pairs = np.zeros(0, np.int64)
    if num_rows:
        first = np.cumsum(fragments.per_row) - fragments.per_row
        pairs = np.add.reduceat(fragments.sizes**2, first)
    figures: dict[str, Any] = {
        "pairs": even_bins(pairs, max_length**2, num_bins=50),
        "pairs_total": int(pairs.sum()),
        "pairs_without_boundaries": int((row_lengths**2).sum()),
        "ranks": options.num_ranks,
        "rows_per_rank": options.rows_per_rank,
        "balance": None,
    }
    if num_rows >= options.num_ranks * options.rows_per_rank:
        costs = row_lengths + 2e-5 * pairs  # as in `quire.attention_costs`
        balanced = {
            window: balance(costs, options.num_ranks, options.rows_per_rank, window=window)
            for window in (1, 4, 16)
        }
        figures["balance"] = {
            "before": balanced[1].before,
            "after": {str(window): found.after for window, found in balanced.items()},
        }
    return figures
