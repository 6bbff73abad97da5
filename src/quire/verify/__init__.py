"""Checks of packed data: `output` and `inputs` for packed datasets, `isolation` for models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.verify.isolation.report import IsolationOptions, IsolationReport

if TYPE_CHECKING:
    from quire.verify.isolation.check import check_isolation

__all__ = ["IsolationOptions", "IsolationReport", "check_isolation"]


def __getattr__(name: str) -> object:
    # The check needs torch and the rest does not, so it is imported on first use.
    if name != "check_isolation":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from quire.verify.isolation.check import check_isolation

    return check_isolation
