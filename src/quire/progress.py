"""Progress of long work: stages that a command shows, and a bar for calls from Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Advance: TypeAlias = Callable[[int], None]
"""Adds finished items."""
Display: TypeAlias = Callable[[str, int | None, str], AbstractContextManager[Advance]]
"""Shows a stage: what is done, how many items there are if that is known, and what they are."""

_display: ContextVar[Display | None] = ContextVar("display", default=None)


@contextmanager
def shown_by(display: Display) -> Iterator[None]:
    """Show the stages of the block; without this, nobody sees them."""
    token = _display.set(display)
    try:
        yield
    finally:
        _display.reset(token)


@contextmanager
def stage(label: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
    """A part of long work, shown if a command runs it; yields what counts finished items.

    >>> with stage("reading", 2, "row") as advance:
    ...     advance(2)
    """
    display = _display.get()
    if display is None:
        yield lambda done: None
        return
    with display(label, total, unit) as advance:
        yield advance


@contextmanager
def progress_bar(
    label: str, total: int, *, show: bool | None = None
) -> Iterator[Callable[[int], None]]:
    """A function that adds finished items to the bar, which is shown if stderr is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    console = Console(stderr=True)
    # On a terminal the bar disappears at the end; in a file only its last state is written.
    with Progress(*columns, console=console, transient=console.is_terminal) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.advance(task, done)
