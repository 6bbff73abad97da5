"""Proofs about packed data: that documents stay apart inside a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire.verify.examination import IsolationOptions
    from quire.verify.isolation import check_isolation
    from quire.verify.report import IsolationReport

__all__ = ["IsolationOptions", "IsolationReport", "check_isolation"]


def __getattr__(name: str) -> object:
    # The proof needs torch; what else lives here does not, so it is loaded when asked for.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from quire.verify import examination, isolation, report

    homes = {"IsolationOptions": examination, "IsolationReport": report}
    return getattr(homes.get(name, isolation), name)
