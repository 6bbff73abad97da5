"""Rows of web documents at 8,192, packed by best_fit, shuffled and distributed to ranks. The figure
is the slowest rank over the mean, summed over steps: at 1.25 a fifth of all time is spent waiting.
"Attention only" costs `sum(length²)`; "whole layer" is the default of `attention_costs`.
"""

from __future__ import annotations

import quire
from benchmarks.harness import Table, cpu_best_of, draw_lengths, milliseconds

TITLE = "Balance"
COSTS = {
    "attention only": {"per_token": 0.0, "per_pair": 1.0},
    "whole layer": {},
}


def run() -> list[Table]:
    table = Table(
        "Slowest rank over the mean",
        ["ranks x rows", "window", "cost", "before", "after", "CPU time"],
    )
    plan = quire.make_plan(draw_lengths("web", 400_000, 8192), 8192, shuffle=True)
    for ranks, rows in ((64, 1), (8, 8)):
        for window in (1, 4, 16):
            for name, cost in COSTS.items():

                def deal(ranks=ranks, rows=rows, window=window, cost=cost):
                    return quire.balance(plan, ranks, rows, window=window, **cost)

                dealt = deal()
                table.add(
                    f"{ranks} x {rows}",
                    window,
                    name,
                    f"{dealt.before:.4f}",
                    f"{dealt.after:.4f}",
                    milliseconds(cpu_best_of(2, deal)),
                )
    return [table]
