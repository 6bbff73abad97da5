"""Text for people: singular and plural nouns, and control characters escaped."""

from __future__ import annotations


def printable(text: str, keep: str = "\n") -> str:
    """The text with control characters escaped, except for those to keep.

    >>> print(printable("a\x1b[31m"))
    a\\x1b[31m
    """
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def counted(number: int, noun: str) -> str:
    """A number with its noun in the singular or plural.

    >>> counted(1, "row"), counted(2500, "row")
    ('1 row', '2,500 rows')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
