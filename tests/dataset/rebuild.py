"""Documents rebuilt from packed rows only, without any of quire's code."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any


def fragments(rows: list[dict[str, Any]], column: str = "input_ids") -> list[tuple[int, int, list]]:
    """(document, offset, values) of every fragment, according to the rows."""
    found = []
    for row in rows:
        assert row[column], "a row with no token has no existence"
        starts = row["document_starts"]
        assert starts[0] == 0 and all(a < b for a, b in pairwise(starts)), starts
        assert starts[-1] < len(row[column])
        edges = [*starts, len(row[column])]
        sources = zip(row["document_ids"], row["document_offsets"], strict=True)
        for (document, offset), (a, b) in zip(sources, pairwise(edges), strict=True):
            found.append((document, offset, row[column][a:b]))
    return found


def documents(
    rows: list[dict[str, Any]], column: str = "input_ids", prefix: int = 0
) -> dict[int, dict[int, Any]]:
    """The value at each offset of every document; repeated values must be equal."""
    whole: dict[int, dict[int, Any]] = defaultdict(dict)
    for document, offset, values in fragments(rows, column):
        for place, value in enumerate(values[prefix:], start=offset):
            assert whole[document].setdefault(place, value) == value
    return dict(whole)


def num_tokens(rows: list[dict[str, Any]]) -> int:
    return sum(len(row["input_ids"]) for row in rows)
