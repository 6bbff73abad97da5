"""Run only some of many cases in the quick suite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(cases: Iterable[Any], one_in: int) -> list[Any]:
    """All cases; all but every n-th carry the marker `slow`.

    A number that shares no factor with the lengths of a product meets every value of each.
    """
    return [
        case if number % one_in == 0 else _slow(case) for number, case in enumerate(list(cases))
    ]


def _slow(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
