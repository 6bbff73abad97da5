"""Regular expressions of tokenizers: which ones `fastokens` reads as `tokenizers` does.

`tokenizers` searches with Oniguruma, `fastokens` with PCRE2. Of what patterns can hold, these were
compared on all characters: words (``\\w``, ``\\b``), scripts (``\\p{Han}``), POSIX classes, ``^``,
``$``, nested classes, flags, and letters that case folding expands (``(?i:ss)``) differ. A few
characters differ in what is left; documents that hold them are encoded by the reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_ENDING = r"'?(?:\[[sdmt]+\]|[sdmt]|re|ve|ll)"
_CONTRACTIONS = rf"\(\?[a-z]*i[a-z]*:{_ENDING}(?:\|{_ENDING})*\)"
"""'s, 't, 're and so on in either case: all that ignores case in published tokenizers."""
_CATEGORY = r"(?:L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?)"
_CODE = r"x[0-9A-Fa-f]{2}|x\{[0-9A-Fa-f]+\}|u[0-9A-Fa-f]{4}"
_ESCAPE = rf"\\(?:[sSdDrntf]|[pP]\{{{_CATEGORY}\}}|{_CODE}|\W)"
_CLASS = rf"\[\^?(?:{_ESCAPE}|&(?!&)|[^\]\[\\&])+\]"
_GROUP = r"\((?!\?)|\(\?(?:[:=!>]|<[=!])|\)"
_KNOWN = re.compile("|".join((_CONTRACTIONS, _ESCAPE, _CLASS, _GROUP, r"[^\\\[\]()^$]")))
_UNKNOWN = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[[^\]]*\]?|\(\?[^:)]*[:)]?|.", re.DOTALL)
"""What to show of the rest: an escape, a class, a group's flags or a character."""
_PUBLISHED = {" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"}
"""Bloom's; its nested class was compared as a whole."""


def patterns_of(backend: Any) -> list[str]:  # noqa: ANN401
    """The regular expressions with which a tokenizer normalizes and splits texts."""
    parts = (backend.normalizer, backend.pre_tokenizer)
    return [
        pattern
        for part in parts
        if part is not None
        for pattern in _regexes(json.loads(part.__getstate__()))
    ]


def _regexes(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(found := part.get("Regex"), str):
            yield found
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _regexes(inner)


def doubtful_part(pattern: str) -> str | None:
    r"""The first part of a pattern that the two libraries may read differently, if there is one.

    >>> doubtful_part(r"(?i:'s|'t|'re)|\p{L}+|\s+(?!\S)"), doubtful_part(r"\p{N}|\w+")
    (None, '\\w')
    """
    place = 0
    while place < len(pattern) and pattern not in _PUBLISHED:
        if (found := _KNOWN.match(pattern, place)) is None:
            return str(_UNKNOWN.findall(pattern, place)[0])
        place = found.end()
    return None


def hazards_of(patterns: list[str]) -> str:
    """Characters that the two libraries match differently with these patterns.

    The long s where a pattern ignores case, and a character that was a space until Unicode 6.3.
    """
    ignores_case = any(re.search(r"\(\?[a-z]*i", pattern) for pattern in patterns)
    has_spaces = any(re.search(r"\\[sS]", pattern) for pattern in patterns)
    return "\u017f" * ignores_case + "\u180e" * has_spaces
