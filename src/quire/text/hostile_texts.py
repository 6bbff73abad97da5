"""Texts on which tokenizer engines are likely to differ, compared before one is trusted."""

from __future__ import annotations

import itertools
import sys
import unicodedata
from collections.abc import Iterable, Iterator

_PER_CATEGORY = 12
_MOST_OVERLAPS = 5_000
_COMBINING = (
    "e\u0301",
    "o\u0302\u0301",
    "\u1e9b\u0323",
    "\u0344",
    "\u0958",
    "\u09fe",
    "\u2126",
    "\ufb01",
)
"""Characters that normalization composes, decomposes or leaves: NFC and NFKC disagree on them."""
_HANGUL = ("\u1100\u1161\u11a8", "\uac01", "\u1100\u1161", "\u11a8")
_SPACES = (
    " ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u180e",
    "\u200b",
    "\u2028",
    "\x0b",
    "\x85",
)
_APOSTROPHES = (
    "'s",
    "'S",
    "'t",
    "'re",
    "'VE",
    "'ll",
    "'d",
    "\u2019s",
    "'\u017f",
    "'\u017fx",
    "'\u212a",
)
_WORDS = (
    "hello",
    "Hello",
    "HELLO",
    "naïve",
    "don't",
    "x1y2",
    "foo_bar",
    "1234567890",
    "3.14e-10",
    "0x7fff",
)
_SCRIPTS = (
    "Ελληνικά γράμματα",
    "русский текст",
    "עברית",
    "اللغة العربية",
    "हिन्दी पाठ",
    "বাংলা",
    "ไทยไม่มีช่องว่าง",
    "中文没有空格",
    "日本語のテキスト",
    "한국어 텍스트",
    "ქართული",
    "አማርኛ",
    "🙂👩\u200d👩\u200d👧🏽🇩🇪",
    "𝒳𝔘𐍈",
)


def hostile_texts(added_tokens: Iterable[str]) -> list[str]:
    """About 1,500 short texts, and a few long ones, for a tokenizer with these added tokens.

    >>> texts = hostile_texts(["<|end|>"])
    >>> "" in texts, "<|end|" in texts, len(texts) > 1000
    (True, True, True)
    """
    tokens = list(added_tokens)
    groups = (
        ["", *_COMBINING, *_HANGUL, *_SCRIPTS, *_WORDS],
        _characters(),
        _pairs([*_WORDS, *_SPACES, *_APOSTROPHES, *_COMBINING[:3], "!?", "(", '"', "-", "\x00"]),
        _runs(),
        _around(tokens[:40]),
        (f"a{token}b" for token in tokens[40:]),
        itertools.islice(_overlaps(tokens), _MOST_OVERLAPS),
        _long(),
    )
    return list(dict.fromkeys(itertools.chain.from_iterable(groups)))


def _characters() -> Iterator[str]:
    """Some characters of every Unicode category, in words and between spaces."""
    by_category: dict[str, list[str]] = {}
    # All of the first planes' alphabets, and a sample of the rest, which is mostly ideographs.
    for number in itertools.chain(range(0x3000), range(0x3000, sys.maxunicode + 1, 61)):
        found = by_category.setdefault(unicodedata.category(chr(number)), [])
        found.append(chr(number))
    for category, found in sorted(by_category.items()):
        if category != "Cs":  # half a surrogate pair is not text
            for character in found[:: max(1, len(found) // _PER_CATEGORY)]:
                yield from (f"a{character}b", f" {character} {character}{character}1")


def _pairs(parts: list[str]) -> Iterator[str]:
    for first, second in itertools.product(parts, repeat=2):
        yield f"{first}{second}a"


def _runs() -> Iterator[str]:
    """Runs of spaces, line ends, digits, letters and punctuation, where patterns count lengths."""
    for part, count in itertools.product(
        (*_SPACES[:5], "a", "1", "!", "é", "中", "\u0301"), (2, 3, 4, 17, 129)
    ):
        yield from (part * count, f"x{part * count}y", f"{part * count} z")


def _around(tokens: list[str]) -> Iterator[str]:
    """Added tokens: whole, cut, doubled, in other case, next to spaces and inside words."""
    for token in tokens:
        yield from (
            token,
            token[:-1],
            token[1:],
            token * 2,
            f" {token} ",
            f"a{token}b",
            f"\n{token}\n",
        )
        yield from (token.upper(), token.lower(), f"{token[:-1]} {token[-1:]}", f"{token}'s 1")


def _overlaps(tokens: list[str]) -> Iterator[str]:
    """Two added tokens where the end of one is the start of the other; only one can be found."""
    starting: dict[str, list[str]] = {}
    for token in tokens:
        for end in range(1, len(token)):
            starting.setdefault(token[:end], []).append(token)
    for token in tokens:
        for start in range(1, len(token)):
            shared = token[start:]
            yield from (token + other[len(shared) :] for other in starting.get(shared, ()))


def _long() -> Iterator[str]:
    yield "a" * 20_000
    yield "ab1 " * 5_000
    yield "word" + "\u0301" * 3_000
    yield " " * 10_000 + "x"
    yield "".join(_SCRIPTS) * 40
