"""Proofs about packed data: that documents stay apart inside a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quire.verify.options import IsolationOptions
from quire.verify.report import IsolationReport

if TYPE_CHECKING:
    from quire.verify.isolation import check_isolation

__all__ = ["IsolationOptions", "IsolationReport", "check_isolation"]


def __getattr__(name: str) -> object:
    # The proof needs torch and what else lives here does not, so it is loaded when asked for.
    if name != "check_isolation":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from quire.verify.isolation import check_isolation

    return check_isolation
