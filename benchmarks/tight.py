"""`tight` finds with a linear program which kinds of rows a cheapest plan uses. "Bound" is proven:
no plan has fewer rows. Seconds are only for planning, from the histogram of sizes; they hardly
depend on the number of documents. Published for the Wikipedia histogram: 99.75 % with at most 3
documents in a row, 99.98 % with 16 and without a limit (Krell et al., 2021).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks.harness import Table, best_of, draw_lengths, percent
from quire.plan.search.bound import pattern_bound
from quire.plan.search.one_budget import solve_patterns
from quire.plan.strategies.best_fit import best_fit_runs

TITLE = "Tight packing"
WIKIPEDIA = Path(__file__).parents[2] / "shared" / "lengths" / "wikipedia_512.json"
HEADER = (
    "sizes",
    "row",
    "cap",
    "documents",
    "best_fit rows",
    "tight rows",
    "bound",
    "best_fit",
    "tight",
    "at the bound",
    "seconds",
)


def run() -> list[Table]:
    tables = [Table("Synthetic sizes", HEADER)]
    if WIKIPEDIA.exists():
        tables.insert(0, _wikipedia())
    for name, lengths, max_length, cap in cases():
        sizes, counts = np.unique(lengths[lengths <= max_length], return_counts=True)
        _add(tables[-1], name, sizes[::-1], counts[::-1], max_length, cap)
    return tables


def _wikipedia() -> Table:
    table = Table("Wikipedia, 16.3 million sequences", HEADER)
    numbers = np.array(json.loads(WIKIPEDIA.read_text())["counts_for_length_1_up"])
    sizes = (np.flatnonzero(numbers) + 1)[::-1]
    for cap in (3, 8, 16, None):
        _add(table, "Wikipedia", sizes, numbers[sizes - 1], 512, cap)
    return table


def cases():
    for num_documents in (10_000, 1_000_000):
        for max_length in (2048, 4096, 8192):
            yield "chat", draw_lengths("chat", num_documents, max_length), max_length, None
        yield "chat", draw_lengths("chat", num_documents, 4096), 4096, 3
        for max_length in (4096, 8192):
            yield "uniform", draw_lengths("uniform", num_documents, max_length), max_length, None
    rng = np.random.default_rng(0)
    for max_length in (4096, 131_072):
        for name, low, high in (("1/3 to 1/2", 3, 2), ("1/4 to 1/2", 4, 2), ("1/6 to 1/2", 6, 2)):
            lengths = rng.integers(max_length // low + 1, max_length // high + 1, 100_000)
            yield f"uniform, {name} of a row", lengths, max_length, None
    halves = np.repeat([2047, 2049], 50_000)
    yield "half a row ± 1", halves, 4096, None
    yield "web", draw_lengths("web", 1_000_000, 4096), 4096, 4


def _add(table: Table, name: str, sizes, counts, max_length: int, cap: int | None) -> None:
    num_documents, tokens = int(counts.sum()), int(sizes @ counts)
    _, best_fit = best_fit_runs(sizes.tolist(), counts.tolist(), max_length, cap or num_documents)
    found = []
    seconds = best_of(1, lambda: found.append(solve_patterns(sizes, counts, max_length, cap)))
    rows = min(best_fit, found[0].num_rows)
    bound = pattern_bound(sizes, counts, max_length, cap)
    assert bound <= rows
    utilization = [percent(tokens / (number * max_length)) for number in (best_fit, rows, bound)]
    numbers = [f"{number:,}" for number in (num_documents, best_fit, rows, bound)]
    table.add(name, max_length, cap or "none", *numbers, *utilization, f"{seconds:.1f}")
