"""The linear program over patterns, solved by HiGHS. The only module that needs scipy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quire.errors import missing_dependency

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Relaxed:
    """The cheapest fractional use of some columns."""

    value: float
    """Rows, as a fraction."""
    rows: Floats
    """Rows of each column."""
    prices: Floats
    """What one more fragment of each kind would cost, in rows."""
    pivots: int


def require_solver() -> None:
    """An error with the remedy, where scipy is not installed."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise missing_dependency("scipy", "strategy='tight'", "solver") from error


def solve_relaxed(
    columns: Floats, demands: Floats, transferable: int, max_pivots: int
) -> Relaxed | None:
    """The least total of columns that covers the demands, or None past ``max_pivots``.

    Columns are lines here: ``columns[j, i]`` fragments of kind i. The first ``transferable`` kinds
    are decreasing sizes: a place for one may also be taken by the next smaller one. These transfers
    cost nothing and lose nothing, and they keep prices monotone, which is what makes the search
    for columns converge in a few rounds.
    """
    require_solver()
    from scipy.optimize import linprog
    from scipy.sparse import csc_array, hstack

    transfers = _transfers(len(demands), transferable)
    matrix: Any = hstack([csc_array(-columns.T), csc_array(-transfers)], format="csc")
    cost = np.concatenate([np.ones(len(columns)), np.zeros(transfers.shape[1])])
    # The dual simplex runs on one thread and counts its pivots, so a limit on them is repeatable.
    result = linprog(
        cost,
        A_ub=matrix,
        b_ub=-demands,
        method="highs-ds",
        options={"presolve": False, "maxiter": max_pivots},
    )
    if result.x is None or result.fun is None or result.status != 0:
        return None
    return Relaxed(
        value=float(result.fun),
        rows=result.x[: len(columns)],
        prices=np.maximum(0.0, -result.ineqlin.marginals),
        pivots=int(result.nit),
    )


def _transfers(num_kinds: int, transferable: int) -> Floats:
    transfers = np.zeros((num_kinds, max(0, transferable - 1)))
    larger = np.arange(transfers.shape[1])
    transfers[larger, larger] = -1
    transfers[larger + 1, larger] = 1
    return transfers
