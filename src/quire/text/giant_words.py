"""Words that are too long for a tokenizer: time and memory grow with the longest word of a text."""

from __future__ import annotations

import re

MOST = 10_000_000
"""Consecutive characters of one kind; byte-pair encoding of more takes gigabytes and minutes."""
_KINDS = {
    "letters": re.compile(r"[^\W\d_]+"),
    "digits": re.compile(r"\d+"),
    "spaces": re.compile(r"\s+"),
    "symbols": re.compile(r"(?:[^\w\s]|_)+"),
}


def giant_word(text: str, most: int = MOST) -> str | None:
    """What is wrong with a text that has over ``most`` consecutive characters of one kind.

    Texts that are not longer than that are not examined, and of others only a small part: such a
    word covers one of the spans of half its length.

    >>> giant_word("a text", most=4), giant_word("a longer text", most=5)
    (None, 'has 6 consecutive letters, from character 2 on, but a tokenizer is given at most 5')
    """
    if len(text) <= most:
        return None
    span = max(1, most // 2)
    for start in range(0, len(text) - span + 1, span):
        for name, run in _KINDS.items():
            found = run.match(text, start)
            if found is None or found.end() - start < span:
                continue
            # The span before is not covered, so the word begins inside it.
            before = [part.span() for part in run.finditer(text, max(0, start - span), start)]
            first = before[-1][0] if before and before[-1][1] == start else start
            if found.end() - first > most:
                return (
                    f"has {found.end() - first:,} consecutive {name}, from character {first:,} on, "
                    f"but a tokenizer is given at most {most:,}"
                )
    return None
