"""Lines that commands print."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text


def say(
    line: str | Text, style: str | None = None, *, markup: bool = False, to_stderr: bool = False
) -> None:
    """Print a line without wrapping or markup: programs may read it, and names hold brackets."""
    Console(stderr=to_stderr).print(
        line, style=style, markup=markup, highlight=False, soft_wrap=True
    )


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
