"""`quire demo`: plan a real corpus that every machine has."""

from __future__ import annotations

import sysconfig
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from quire.errors import InvalidOption, MissingDependency
from quire.plan import Plan, make_plan, strategy_names

console = Console()


def demo(
    max_length: Annotated[int, typer.Option(help="Places in a row.")] = 4096,
    corpus: Annotated[
        Path | None, typer.Option(help="A folder; every file in it is one document.")
    ] = None,
    pattern: Annotated[str, typer.Option(help="Which files of the folder.")] = "*.py",
) -> None:
    """Plan the Python standard library's own sources with every strategy, and compare.

    A file is a document, a byte is a token. Nothing is written.

    Example: quire demo --max-length 8192
    """
    folder = corpus or Path(sysconfig.get_paths()["stdlib"])
    lengths = _file_sizes(folder, pattern)
    console.print(_headline(lengths, folder if corpus else None), soft_wrap=True)
    table, notes = _comparison(lengths, max_length)
    console.print(table)
    for note in notes:
        console.print(note, style="dim", markup=False, highlight=False, soft_wrap=True)


def _file_sizes(folder: Path, pattern: str) -> np.ndarray:
    files = sorted(path for path in folder.rglob(pattern) if "site-packages" not in path.parts)
    if not files:
        raise InvalidOption(f"{folder} holds no file that matches {pattern!r}; say --pattern")
    return np.array([path.stat().st_size for path in files])


def _headline(lengths: np.ndarray, folder: Path | None) -> str:
    median, largest = int(np.median(lengths)), int(lengths.max(initial=0))
    name = folder or "the Python standard library"
    return (
        f"[bold]{len(lengths):,}[/] files of {name}: "
        f"[bold]{int(lengths.sum()):,}[/] tokens (bytes), median {median:,}, longest {largest:,}"
    )


def _comparison(lengths: np.ndarray, max_length: int) -> tuple[Table, list[str]]:
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
                plan = make_plan(lengths, max_length, strategy, overlong=overlong)
            except MissingDependency as missing:
                notes.append(str(missing))
                table.add_row(strategy, "[dim]not installed[/]")
                break
            table.add_row(strategy, overlong, *_figures(plan, time.perf_counter() - started))
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
