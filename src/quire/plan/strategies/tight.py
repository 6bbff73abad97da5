"""Near-optimal rows, by a linear program over row patterns; never more rows than best-fit.

Best-fit decreasing loses where few documents make up a row: half-empty rows under a cap, rows of
three where three do not quite fill. `tight` finds which patterns a cheapest plan would use:

1. sizes are grouped into at most a few hundred classes (one size each if there are few enough);
2. column generation solves the linear program over all patterns of classes;
3. fractions become whole rows, and the program is solved again for what is left;
4. patterns of classes become rows of real sizes, completed by best-fit;
5. the plan with the fewest rows is kept, best-fit's own among them.

Steps 1 to 4 are repeated with finer classes until a plan needs no more rows than its tokens or its
number of documents do, or the budget of work is spent. The budget counts pivots, table cells and
sizes, not seconds, and HiGHS runs its single-threaded dual simplex: the same versions of numpy and
scipy give the same plan on any machine. The default is about ten seconds of one processor at most,
whatever the number of documents and the row length.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from quire.plan.fragments import Rows
from quire.plan.histogram import decreasing_rows
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions
from quire.plan.search.columns import BUDGET, require_solver
from quire.plan.search.one_budget import solve_patterns
from quire.plan.strategies import Strategy
from quire.plan.strategies.best_fit import best_fit_runs


def tight(sizes: IntArray, max_length: int, options: PlanOptions, *, budget: int = BUDGET) -> Rows:
    """Rows by the linear program, or by best-fit if that needs no more."""
    require_solver()
    runs = partial(_tight_runs, budget=budget)
    return decreasing_rows(sizes, max_length, options.max_documents_per_row, runs)


def _tight_runs(
    sizes: list[int], counts: list[int], max_length: int, cap: int, *, budget: int
) -> tuple[list[int], int]:
    runs, num_rows = best_fit_runs(sizes, counts, max_length, cap)
    histogram = np.array(sizes, dtype=np.int64), np.array(counts, dtype=np.int64)
    patterns = solve_patterns(*histogram, max_length, cap, budget=budget)
    if patterns.num_rows < num_rows:
        return patterns.runs(), patterns.num_rows
    return runs, num_rows


STRATEGY = Strategy(place=tight, needs_order=False, is_slow=True)
