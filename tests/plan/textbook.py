"""First-fit and best-fit decreasing as in textbooks: for each item, look at all bins."""

from __future__ import annotations


def decreasing_fit(lengths: list[int], max_length: int, cap: int, *, best: bool) -> list[list[int]]:
    """Rows of document numbers; ties go to the earlier document and to the older row."""
    rows: list[list[int]] = []
    space: list[int] = []
    for document in sorted(range(len(lengths)), key=lambda d: -lengths[d]):
        size = lengths[document]
        fitting = [r for r in range(len(rows)) if space[r] >= size and len(rows[r]) < cap]
        if not fitting:
            rows.append([])
            space.append(max_length)
            fitting = [len(rows) - 1]
        row = min(fitting, key=lambda r: space[r]) if best else fitting[0]
        rows[row].append(document)
        space[row] -= size
    return rows


def next_fit(lengths: list[int], max_length: int, cap: int) -> list[list[int]]:
    """Rows in document order."""
    rows: list[list[int]] = []
    space = 0
    for document, size in enumerate(lengths):
        if size > space or len(rows[-1]) == cap:
            rows.append([])
            space = max_length
        rows[-1].append(document)
        space -= size
    return rows
