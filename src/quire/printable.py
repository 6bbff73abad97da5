"""Text for people: singular and plural nouns, and control characters escaped."""

from __future__ import annotations


def printable(text: str, keep: str = "\n") -> str:
    """The text with control characters escaped, except for those to keep.

    >>> print(printable("a\x1b[31m"))
    a\\x1b[31m
    """
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def share_full(share: float, digits: int = 2) -> str:
    """A share of rows that holds content, in percent; 100 % only if nothing is missing.

    >>> share_full(0.99998), share_full(0.98765), share_full(1.0)
    ('99.99%', '98.77%', '100.00%')
    """
    text = f"{share:.{digits}%}"
    return text if share >= 1 or float(text[:-1]) < 100 else f"{100 - 10**-digits:.{digits}f}%"


def counted(number: int, noun: str) -> str:
    """A number with its noun in the singular or plural.

    >>> counted(1, "row"), counted(2500, "row")
    ('1 row', '2,500 rows')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
