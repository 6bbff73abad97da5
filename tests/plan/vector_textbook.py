"""Packing within several budgets: plain reference implementations and exhaustive search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def fewest_rows(sizes, budgets: Sequence[int], max_items: int | None) -> int:
    """The optimum by exhaustive search; for a handful of documents."""
    documents = sorted((tuple(document) for document in sizes), reverse=True)
    cap = max_items or len(documents)
    best = len(documents)

    def place(number: int, rows: list[tuple[int, ...]]) -> None:
        """Rows are their spaces and, last, how many documents they may still take."""
        nonlocal best
        if len(rows) >= best:
            return
        if number == len(documents):
            best = len(rows)
            return
        document = (*documents[number], 1)
        for row in set(rows):
            if all(space >= size for space, size in zip(row, document, strict=True)):
                others = rows.copy()
                others.remove(row)
                place(number + 1, [*others, _less(row, document)])
        place(number + 1, [*rows, _less((*budgets, cap), document)])

    place(0, [])
    return best


def _less(row: tuple[int, ...], document: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(space - size for space, size in zip(row, document, strict=True))


def first_fit_in_a_buffer(sizes: np.ndarray, budgets: Sequence[int], most_open: int) -> int:
    """Rows by first-fit in input order; if too many are open, the fullest is closed."""
    open_rows: list[np.ndarray] = []
    num_rows = 0
    for size in sizes:
        row = next((row for row in open_rows if (row >= size).all()), None)
        if row is None:
            if len(open_rows) == most_open:
                del open_rows[int(np.argmin([(row / budgets).sum() for row in open_rows]))]
            row = np.array(budgets)
            open_rows.append(row)
            num_rows += 1
        row -= size
    return num_rows


def naive_best_fit(sizes: np.ndarray, budgets: Sequence[int]) -> int:
    """Rows by best-fit decreasing: by largest share, into the row with the least space in sum."""
    budgets = np.array(budgets)
    spaces = np.zeros((len(sizes), len(budgets)), dtype=np.int64)
    num_rows = 0
    for document in np.argsort(-(sizes / budgets).max(axis=1), kind="stable"):
        fitting = np.flatnonzero((spaces[:num_rows] >= sizes[document]).all(axis=1))
        if len(fitting):
            row = fitting[np.argmin((spaces[fitting] / budgets).sum(axis=1))]
        else:
            row, num_rows = num_rows, num_rows + 1
            spaces[row] = budgets
        spaces[row] -= sizes[document]
    return num_rows
