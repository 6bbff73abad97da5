"""Lines that commands print."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from rich.console import Console
from rich.text import Text

from quire.errors import OutputError


@lru_cache(maxsize=1)
def _console(stream: object, is_stderr: bool) -> Console:
    del stream  # another one has another console
    return Console(stderr=is_stderr)


def console_of_stderr() -> Console:
    """The console of all that is written to stderr, so that a line goes above a live display."""
    return _console(sys.stderr, True)


def say(
    line: str | Text, style: str | None = None, *, markup: bool = False, to_stderr: bool = False
) -> None:
    """Print a line without wrapping or markup: programs may read it, and names hold brackets."""
    (console_of_stderr() if to_stderr else Console()).print(
        line, style=style, markup=markup, highlight=False, soft_wrap=True
    )


def require_folder(option: str, file: Path) -> None:
    """Raise before any work if a file cannot be written where an option names it."""
    folder = file.parent
    if not folder.is_dir():
        raise OutputError(f"{option} is {file} but there is no folder {folder}; create it")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{option} is {file} but {folder} is read-only; choose another folder")


def has_colors() -> bool:
    """Whether the output shows colors and styles."""
    return Console().color_system is not None


class _Lines(logging.Handler):
    """Prints what quire logs for its users, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage(), to_stderr=True)


@contextmanager
def saying_what_is_logged() -> Iterator[None]:
    """Print on stderr what quire logs in the block, such as the kind of records it recognized."""
    logger, handler = logging.getLogger("quire"), _Lines(logging.INFO)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print the warnings of the block when it ends, one per line."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    for warning in seen:
        say(f"warning {_one_line(warning.message)}", to_stderr=True)


def _one_line(text: object) -> str:
    return str(text).encode("unicode_escape").decode()
