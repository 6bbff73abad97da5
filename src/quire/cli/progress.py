"""The progress of every command, on stderr: stage, percentage, rate, time left.

On a terminal it is one line that is there from the start; elsewhere a line every few seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from quire.cli.console import console_of_stderr, say
from quire.printable import counted
from quire.progress import Advance

if TYPE_CHECKING:
    from quire.corpus.job import Progress as Step
    from quire.corpus.pack import Start

_SECONDS_BETWEEN_LINES = 10.0


class ProgressLine:
    """One stage of a command."""

    def __init__(
        self, stage: str, total: int | None = None, unit: str = "", *, threaded: bool = True
    ) -> None:
        self._stage, self._total, self._unit = stage, total, unit
        self._done = 0
        self._figures = ""
        self._live: Any = None
        self._threaded = threaded
        """Whether a thread may redraw the line: not before processes are forked."""

    def __enter__(self) -> ProgressLine:
        self._started = self._spoken = self._drawn = time.monotonic()
        if sys.stderr.isatty():
            self._show()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def restart(self, stage: str, total: int | None) -> None:
        """Go on to another stage."""
        self._stage, self._total, self._done = stage, total, 0
        self._started = self._spoken = time.monotonic()
        if self._live is not None:
            self._live.reset(self._task, description=stage, total=total, figures="")

    def advance(self, done: int, figures: str = "") -> None:
        """Add finished items; ``figures`` are shown in place of their rate."""
        self._done += done
        self._figures = figures or self._rate()
        now = time.monotonic()
        if self._live is not None:
            self._live.update(self._task, completed=self._done, figures=self._figures)
            if not self._threaded and now - self._drawn > 0.1:
                self._drawn = now
                self._live.refresh()
        elif now - self._spoken > _SECONDS_BETWEEN_LINES:
            self._spoken = now
            _say(self._line())

    def _show(self) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        known = (TaskProgressColumn(), BarColumn(bar_width=20))
        text = (TextColumn("{task.description}"), TextColumn("{task.fields[figures]}"))
        last = TimeElapsedColumn() if self._total is None else TimeRemainingColumn()
        columns = (text[0], *(() if self._total is None else known), text[1], last)
        self._live = Progress(
            *columns,
            console=console_of_stderr(),
            transient=True,
            auto_refresh=self._threaded,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._live.add_task(self._stage, total=self._total, figures="")
        self._live.start()
        self._live.refresh()

    def _rate(self) -> str:
        if not self._unit:
            return ""
        per_second = self._done / max(1e-3, time.monotonic() - self._started)
        return f"{per_second:,.0f} {self._unit}s/s"

    def _line(self) -> str:
        parts = [part for part in (self._figures, *self._shares()) if part]
        return f"{self._stage}: {', '.join(parts)}"

    def _shares(self) -> Iterator[str]:
        if self._total:
            done = min(1.0, self._done / self._total)
            seconds = (time.monotonic() - self._started) * (1 - done) / max(done, 1e-9)
            yield f"{done:.0%}"
            yield f"about {seconds:,.0f} s left"


@contextmanager
def stage_line(stage: str, total: int | None, unit: str) -> Iterator[Advance]:
    """The display of the stages of all commands; see `quire.progress.stage`."""
    with ProgressLine(stage, total, unit) as line:
        yield line.advance


class PackProgress:
    """Documents, tokens per second, utilization so far, bad records, time left; on stderr."""

    def __init__(self, max_length: int | None = None, stage: str = "packing") -> None:
        self._max_length, self._stage = max_length, stage
        self._documents = self._tokens = self._bad = self._bytes = 0
        self._rows = self._content = 0
        self._started = time.monotonic()
        self._line = ProgressLine("reading the inputs", 1, threaded=False)

    def __enter__(self) -> PackProgress:
        self._line.__enter__()
        return self

    def __exit__(self, *ending: object) -> None:
        self._line.__exit__(*ending)
        if self._bytes and not sys.stderr.isatty():
            _say(self._figures())

    def start(self, start: Start) -> None:
        """Start the stage; say how many partitions were resumed."""
        if start.resumed:
            _say(f"resuming: {start.resumed} of {start.partitions} partitions are done")
        self.start_bytes(start.num_bytes)

    def start_bytes(self, num_bytes: int) -> None:
        """Start the stage, with this total number of bytes."""
        self._started = time.monotonic()  # a cluster may take long to start
        self._line.restart(self._stage, max(1, num_bytes))

    def advance(self, step: Step) -> None:
        """Add one progress report."""
        self._documents += step.documents
        self._tokens += step.tokens
        self._bad += step.bad
        self._bytes += step.num_bytes
        if step.commit is not None:
            self._rows += step.commit.rows
            self._content += step.commit.content
        self._line.advance(step.num_bytes, self._figures())

    def _figures(self) -> str:
        seconds = max(1e-3, time.monotonic() - self._started)
        rate = f"{self._tokens / seconds:,.0f} tokens/s"
        parts = [counted(self._documents, "document"), rate]
        if self._rows and self._max_length:
            parts.append(f"{self._content / (self._rows * self._max_length):.2%} full")
        if self._bad:
            parts.append(counted(self._bad, "bad record"))
        return ", ".join(parts)


def _say(line: str) -> None:
    say(line, to_stderr=True)
