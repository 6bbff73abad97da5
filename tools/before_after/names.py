"""Today's names of modules on a checkout from before decision 16, so that cases run on both."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

RENAMED = {
    "quire.plan.search.bound": ("quire.plan.vector_bound", "quire.plan.pattern_bound"),
    "quire.plan.search.one_budget": ("quire.plan.tight",),
    "quire.plan.search.several_budgets": ("quire.plan.vectors",),
    "quire.plan.strategies.best_fit": ("quire.plan.best_fit",),
    "quire.text": ("quire.documents",),
    "quire.corpus.engines.ray.cluster": ("quire.dataset.corpus.ray_connection",),
}
"""Today's modules, and those that had their functions before."""


def use_todays_names() -> None:
    """Make modules of this checkout importable by today's names, where they had others."""
    for today, before in RENAMED.items():
        if _exists(today):
            continue
        module = ModuleType(today)
        for name in before:
            vars(module).update(vars(importlib.import_module(name)))
        sys.modules[today] = module


def _exists(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True
