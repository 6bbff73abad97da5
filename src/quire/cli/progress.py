"""Progress of reading a corpus: a live line on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from quire.cli.console import say
from quire.printable import counted

if TYPE_CHECKING:
    from quire.corpus.job import Progress as Step
    from quire.corpus.pack import Start

_SECONDS_BETWEEN_LINES = 10.0


class PackProgress:
    """Documents, tokens per second, utilization so far, bad records, time left; on stderr."""

    def __init__(self, max_length: int | None = None) -> None:
        self._max_length = max_length
        self._documents = self._tokens = self._bad = self._bytes = 0
        self._rows = self._content = 0
        self._total = 0
        self._started = self._spoken = time.monotonic()
        self._live: Progress | None = None
        self._task = TaskID(0)

    def __enter__(self) -> PackProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._bytes:
            _say(self._figures())

    def start(self, start: Start) -> None:
        """Start the display; say how many partitions were resumed."""
        if start.resumed:
            _say(f"resuming: {start.resumed} of {start.partitions} partitions are done")
        self.start_bytes(start.num_bytes)

    def start_bytes(self, num_bytes: int) -> None:
        """Start the display, with this total number of bytes."""
        self._total = max(1, num_bytes)
        self._started = self._spoken = time.monotonic()  # a cluster may take long to start

    def _show_live(self) -> None:
        """Start the live line, and with it a thread: only once all workers have been forked."""
        columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        self._live = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._live.add_task("", total=self._total)
        self._live.start()

    def advance(self, step: Step) -> None:
        """Add one progress report; the first one starts the live line on a terminal."""
        if self._live is None and sys.stderr.isatty():
            self._show_live()
        self._documents += step.documents
        self._tokens += step.tokens
        self._bad += step.bad
        self._bytes += step.num_bytes
        if step.commit is not None:
            self._rows += step.commit.rows
            self._content += step.commit.content
        if self._live is not None:
            self._live.update(self._task, completed=self._bytes, description=self._figures())
        elif time.monotonic() - self._spoken > _SECONDS_BETWEEN_LINES:
            self._spoken = time.monotonic()
            _say(f"{self._figures()}, {self._time_left()}")

    def _figures(self) -> str:
        seconds = max(1e-3, time.monotonic() - self._started)
        rate = f"{self._tokens / seconds:,.0f} tokens/s"
        parts = [counted(self._documents, "document"), rate]
        if self._rows and self._max_length:
            parts.append(f"{self._content / (self._rows * self._max_length):.2%} full")
        if self._bad:
            parts.append(counted(self._bad, "bad record"))
        return ", ".join(parts)

    def _time_left(self) -> str:
        done = min(1.0, self._bytes / self._total)
        seconds = (time.monotonic() - self._started) * (1 - done) / max(done, 1e-9)
        return f"about {seconds:,.0f} s left"


def _say(line: str) -> None:
    say(line, to_stderr=True)
