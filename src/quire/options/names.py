"""What messages call an option: by its name in Python, or as it is written on the command line.

A message that names an option asks for its name here, so that no text of an error is ever changed:

>>> option("max_bad_records"), setting("overlong", "drop")
('max_bad_records', "overlong='drop'")
>>> with command_words():
...     option("max_bad_records"), setting("overlong", "drop"), setting("pretokenized", True)
('--max-bad-records', '--overlong drop', '--pretokenized')
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_ON_COMMAND_LINE = [False]
_SINGULAR = {"columns": "column"}
"""Options that take several values, of which each is given by itself."""


def option(name: str) -> str:
    """The name of an option, in the words of the interface that was called."""
    if not _ON_COMMAND_LINE[0] or not name.isidentifier():
        return name
    return f"--{_SINGULAR.get(name, name).replace('_', '-')}"


def setting(name: str, value: object) -> str:
    """An option and its value, as the user writes them."""
    if not _ON_COMMAND_LINE[0]:
        return f"{name}={value!r}"
    flag = option(name)
    if isinstance(value, bool):
        return flag if value else flag.replace("--", "--no-", 1)
    return f"{flag} {value}" if str(value) else f"{flag} ''"


@contextmanager
def command_words() -> Iterator[None]:
    """Within the block, messages name options as the command line has them."""
    before, _ON_COMMAND_LINE[0] = _ON_COMMAND_LINE[0], True
    try:
        yield
    finally:
        _ON_COMMAND_LINE[0] = before
