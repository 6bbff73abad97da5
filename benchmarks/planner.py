"""Planning time from a NumPy array of int64 lengths to a validated `Plan` with its ledger, compared
with a stable argsort of the same array, the minimum for any decreasing strategy. Documents longer
than a row are split. Distributions: web log-normal(6.345, 1.092), chat log-normal(7.0, 0.42),
instructions log-normal(4.7, 0.85), uniform on 1..max_length.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict

import numpy as np
import pyarrow as pa
from trl.data_utils import _pack_bfd

import quire
from benchmarks.harness import (
    Table,
    best_of,
    best_of_interleaved,
    draw_lengths,
    milliseconds,
    peak_bytes,
    percent,
    ratio,
)

TITLE = "Planner"
KINDS = ("web", "chat", "instructions", "uniform")


def run() -> list[Table]:
    return [speed(), capacities(), peers(), memory(), policies()]


def argsort(lengths: np.ndarray):
    return lambda: np.argsort(lengths, kind="stable")


def planning(lengths: np.ndarray, max_length: int = 4096, strategy: str = "best_fit", **options):
    return lambda: quire.make_plan(lengths, max_length, strategy, **options)


def speed() -> Table:
    table = Table(
        "best_fit at 4,096 against argsort",
        ["lengths", "documents", "plan", "argsort", "plan / argsort", "rows over bound", "full"],
    )
    for kind in KINDS:
        for count, repeats in ((10_000, 20), (100_000, 10), (1_000_000, 7), (10_000_000, 3)):
            lengths = draw_lengths(kind, count, 4096)
            plan_time, sort_time = best_of_interleaved(repeats, planning(lengths), argsort(lengths))
            plan = planning(lengths)()
            table.add(
                kind,
                f"{count:,}",
                milliseconds(plan_time),
                milliseconds(sort_time),
                ratio(plan_time / sort_time),
                plan.num_rows - plan.lower_bound,
                percent(plan.utilization),
            )
    return table


def capacities() -> Table:
    table = Table(
        "How planning time grows (best_fit)",
        ["lengths", "1M at 4,096", "10M / 1M at 4,096", "131,072 / 4,096 at 1M"],
        note="Goals: 10M in at most 16 times the time of 1M, 131,072 in at most 6 times 4,096.",
    )
    for kind in KINDS:
        million, wide = draw_lengths(kind, 10**6, 4096), draw_lengths(kind, 10**6, 131_072)
        ten = draw_lengths(kind, 10**7, 4096)
        base, large, high = best_of_interleaved(
            4, planning(million), planning(ten), planning(wide, 131_072)
        )
        table.add(kind, milliseconds(base), ratio(large / base), ratio(high / base))
    return table


def peers() -> Table:
    table = Table(
        "Against trl 1.16 and a textbook, 1,000,000 documents at 4,096",
        [
            "lengths",
            "quire best_fit",
            "trl 1.16 bfd",
            "trl / quire",
            "textbook",
            "textbook / quire",
        ],
        note=(
            "trl's `_pack_bfd` gets lists of nulls, so that its time is planning and no tokens "
            "are moved; lengths are cut to max_length. The textbook is best-fit decreasing with a "
            "sorted list of spaces and bisect. All three give the same number of rows."
        ),
    )
    for kind in KINDS:
        lengths = np.minimum(draw_lengths(kind, 10**6, 4096), 4096)
        ours = best_of(5, planning(lengths))
        theirs, trl_rows = timed(trl_best_fit, lists_of_nulls(lengths), 4096)
        textbook, textbook_rows = timed(textbook_best_fit, lengths, 4096)
        assert planning(lengths)().num_rows == trl_rows == textbook_rows
        table.add(
            kind,
            milliseconds(ours),
            f"{theirs:.1f} s",
            ratio(theirs / ours),
            f"{textbook:.2f} s",
            ratio(textbook / ours),
        )
    return table


def timed(function, *arguments) -> tuple[float, int]:
    """Seconds of one call, and its result."""
    results = []
    return best_of(1, lambda: results.append(function(*arguments))), results[0]


def trl_best_fit(lists: pa.Table, max_length: int) -> int:
    return _pack_bfd(lists, max_length, "split").num_rows


def lists_of_nulls(lengths: np.ndarray) -> pa.Table:
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    return pa.table({"input_ids": pa.ListArray.from_arrays(offsets, pa.nulls(int(offsets[-1])))})


def textbook_best_fit(lengths: np.ndarray, max_length: int) -> int:
    """The number of rows by best-fit decreasing: sorted spaces, each with a stack of rows."""
    spaces: list[int] = []
    rows_with: dict[int, list[int]] = defaultdict(list)
    rows = 0
    for length in np.sort(lengths)[::-1].tolist():
        at = bisect_left(spaces, length)
        if at < len(spaces):
            space = spaces[at]
            row = rows_with[space].pop()
            if not rows_with[space]:
                del spaces[at]
        else:
            space, row, rows = max_length, rows, rows + 1
        left = space - length
        if left and not rows_with[left]:
            insort(spaces, left)
        rows_with[left].append(row)
    return rows


def memory() -> Table:
    table = Table(
        "Peak memory, 10,000,000 documents at 4,096 (best_fit)",
        ["lengths", "bytes a document beyond the input", "of which the plan"],
        note="Goal: at most 48. Resident memory, sampled every millisecond.",
    )
    for kind in KINDS:
        lengths = draw_lengths(kind, 10**7, 4096)
        planning(lengths[:1000])()
        plan = planning(lengths)()
        held = sum(array.nbytes for array in plan._arrays())
        del plan
        table.add(kind, f"{peak_bytes(planning(lengths)) / 10**7:.1f}", f"{held / 10**7:.1f}")
    return table


def policies() -> Table:
    table = Table(
        "Strategies and policies, 1,000,000 web documents at 4,096",
        ["strategy", "overlong", "time", "rows", "full", "fragments more than documents", "lost"],
    )
    lengths = draw_lengths("web", 10**6, 4096)
    for strategy in ("best_fit", "first_fit", "greedy", "wrapped"):
        for overlong in ("split", "truncate", "fill", "drop"):
            make = planning(lengths, strategy=strategy, overlong=overlong)
            plan = make()
            table.add(
                strategy,
                overlong,
                milliseconds(best_of(3, make)),
                f"{plan.num_rows:,}",
                percent(plan.utilization),
                f"{plan.num_fragments - plan.ledger.documents.emitted:,}",
                percent(plan.ledger.tokens.num_dropped / plan.ledger.tokens.input, 2),
            )
    return table
