"""Text that cannot steer a terminal."""

from __future__ import annotations


def printable(text: str, keep: str = "\n") -> str:
    """The text with control characters spelt out, save for those to keep.

    >>> print(printable("a\x1b[31m"))
    a\\x1b[31m
    """
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)
