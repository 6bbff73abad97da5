"""Planning only, lengths without tokens, as the number of documents grows: `make_plan` with
best_fit at 4,096, from an int64 array of web-like lengths (log-normal(6.345, 1.092)) to a validated
plan. Memory is the largest growth of this process's resident memory, plus the 8 bytes of every
given length. Above four million documents, a million are planned at a time (decision 12).
"""

from __future__ import annotations

import numpy as np

import quire
from benchmarks.harness import Table, best_of, draw_lengths, peak_bytes, percent, ratio

TITLE = "Planning a hundred million documents"
CAPACITY = 4096
COUNTS = {10**6: 7, 10**7: 3, 10**8: 2}
"""Numbers of documents, and how often each is planned."""
_DRAWN = 10**6


def run() -> list[Table]:
    table = Table(
        "Time and memory of a plan",
        ["documents", "seconds", "ns a document", "of linear growth", "bytes a document", "full"],
        "Goals: at most 1.2 times the time that linear growth from one million gives, at most 40 "
        "bytes a document. Linear growth says of a billion: ten times the last line.",
    )
    first = None
    for count, repeats in COUNTS.items():
        lengths = _lengths(count)
        quire.make_plan(lengths[:1000], CAPACITY)
        seconds = best_of(repeats, lambda lengths=lengths: quire.make_plan(lengths, CAPACITY))
        first = first or seconds / count
        memory = peak_bytes(lambda lengths=lengths: quire.make_plan(lengths, CAPACITY))
        table.add(
            f"{count:,}",
            f"{seconds:.2f} s",
            f"{1e9 * seconds / count:.0f}",
            ratio(seconds / count / first),
            f"{8 + memory / count:.1f}",
            percent(quire.make_plan(lengths, CAPACITY).utilization),
        )
    return [table]


def _lengths(count: int) -> np.ndarray:
    lengths = np.empty(count, dtype=np.int64)
    for first in range(0, count, _DRAWN):
        lengths[first : first + _DRAWN] = draw_lengths("web", _DRAWN, CAPACITY, seed=first)
    return lengths
