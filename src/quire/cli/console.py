"""Lines that commands print."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text


def say(
    line: str | Text, style: str | None = None, *, markup: bool = False, to_stderr: bool = False
) -> None:
    """Print a line as it is, however long: a program may read it, and names contain brackets."""
    Console(stderr=to_stderr).print(
        line, style=style, markup=markup, highlight=False, soft_wrap=True
    )


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
