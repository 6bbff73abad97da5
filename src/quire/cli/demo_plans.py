"""The first half of `quire demo`: one corpus, planned with every strategy."""

from __future__ import annotations

import time

import numpy as np
from rich.table import Table

from quire.errors import MissingDependency
from quire.plan import Plan, make_plan, strategy_names
from quire.text.option_words import words_of_packing

_PATIENCE = 2.0
"""Seconds for one plan; a strategy that takes longer is not tried under its other policies."""


def headline(lengths: np.ndarray, name: str) -> str:
    """How many documents there are, and how long."""
    median, largest = int(np.median(lengths)), int(lengths.max(initial=0))
    return (
        f"[bold]{len(lengths):,}[/] files of {name}: "
        f"[bold]{int(lengths.sum()):,}[/] tokens (bytes), median {median:,}, longest {largest:,}"
    )


def comparison(lengths: np.ndarray, max_length: int) -> tuple[Table, list[str]]:
    """The table, and what to say below it."""
    notes = [
        "full: tokens over rows x length; bound: proven fewest rows for the same "
        "fragments; cuts: how often a document is split; tokens lost: cut off and counted."
    ]
    table = Table(title=f"rows of {max_length:,}", title_justify="left")
    table.add_column("strategy")
    table.add_column("overlong")
    for name in ("rows", "bound", "full", "cuts", "tokens lost", "ms"):
        table.add_column(name, justify="right")
    for strategy in strategy_names():
        for overlong in ("split", "truncate", "fill"):
            try:
                started = time.perf_counter()
                with words_of_packing():
                    plan = make_plan(lengths, max_length, strategy, overlong=overlong)
            except MissingDependency as missing:
                notes.append(str(missing))
                table.add_row(strategy, "[dim]not installed[/]")
                break
            seconds = time.perf_counter() - started
            table.add_row(strategy, overlong, *_figures(plan, seconds))
            if seconds > _PATIENCE:
                notes.append(f"{strategy} searches long, so its other policies are left out here.")
                break
        table.add_section()
    return table, notes


def _figures(plan: Plan, seconds: float) -> list[str]:
    documents = plan.ledger.documents.emitted
    lost = plan.ledger.tokens.num_dropped / max(1, plan.ledger.tokens.input)
    return [
        f"{plan.num_rows:,}",
        f"{plan.lower_bound:,}",
        f"{plan.utilization:.3%}",
        f"{plan.num_fragments - documents:,}",
        f"{lost:.1%}" if lost else "0",
        f"{1000 * seconds:.1f}",
    ]
