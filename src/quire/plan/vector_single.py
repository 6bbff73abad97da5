"""What single dimensions say of a problem in several, before the pattern program is asked."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from quire.errors import MissingDependency, install_command
from quire.plan.bounds import bound_of_sizes
from quire.plan.lengths import IntArray
from quire.plan.options import PlanOptions
from quire.plan.pattern_program import require_solver
from quire.plan.vector_sizes import Vectors

_log = logging.getLogger("quire.plan")


def solver_is_there(purpose: str, instead: str) -> bool:
    """Whether scipy is installed; where it is not, a line in the log says what is done instead."""
    try:
        require_solver()
    except MissingDependency:
        _log.warning(
            "%s without scipy gives only %s; for the pattern program: %s",
            purpose,
            instead,
            install_command("solver"),
        )
        return False
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class OneDimension:
    """An ordinary packing problem."""

    sizes: IntArray
    capacity: int
    cap: int | None
    """The most documents in a row."""


def one_dimension(vectors: Vectors) -> OneDimension | None:
    """The documents as an ordinary packing problem, if one dimension and their number matter."""
    columns = list(zip(vectors.sizes.T, vectors.budgets.tolist(), strict=True))
    ones = [budget for sizes, budget in columns if (sizes == 1).all()]
    others = [(sizes, budget) for sizes, budget in columns if not (sizes == 1).all()]
    if not others:
        return OneDimension(sizes=columns[0][0], capacity=min(ones), cap=None)
    if len(others) > 1 or not others[0][0].all():
        return None
    return OneDimension(sizes=others[0][0], capacity=others[0][1], cap=min(ones, default=None))


def simple_bound(vectors: Vectors) -> int:
    """The largest bound of a single dimension."""
    bounds = [1]
    for column, budget in zip(vectors.sizes.T, vectors.budgets.tolist(), strict=True):
        bounds.append(bound_of_sizes(column[column > 0], PlanOptions(max_length=budget)))
    return max(bounds)
