"""A progress bar for long work, shown only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(
    label: str, total: int, *, show: bool | None = None
) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of things done; a bar on stderr if that is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Remaining())
    console = Console(stderr=True)
    # On a terminal the bar goes away; in a file, all that is ever written is its last state.
    with Progress(*columns, console=console, transient=console.is_terminal) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.advance(task, done)


class ByteProgress:
    """A bar over bytes on stderr, whose total is given once it is known; silent in a pipe."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._stack = ExitStack()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ByteProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, num_bytes: int) -> None:
        """Show the bar."""
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), Remaining())
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar = self._stack.enter_context(progress)
        self._task = self._bar.add_task(self._label, total=num_bytes or None)

    def advance(self, num_bytes: int) -> None:
        """Count this many more bytes as done."""
        if self._bar is not None:
            self._bar.advance(self._task, num_bytes)
