"""What a source gives: texts, and records from which no text can be read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record without a text; ``problem`` says where it stands and why, never what it holds."""

    problem: str


Record: TypeAlias = "str | BadRecord"


def text_of(record: object, text_key: str, where: str) -> Record:
    """The text of a mapping, or why there is none.

    >>> text_of({"text": None}, "text", "a.jsonl: line 3")
    BadRecord(problem="a.jsonl: line 3 has NoneType under 'text', not a string")
    """
    if not isinstance(record, Mapping):
        return BadRecord(f"{where} is {type(record).__name__}, not an object")
    if text_key not in record:
        known = ", ".join(sorted(map(str, record)))[:200]
        return BadRecord(f"{where} has no {text_key!r} (it has: {known}); set data.text_key")
    text = record[text_key]
    if not isinstance(text, str):
        return BadRecord(f"{where} has {type(text).__name__} under {text_key!r}, not a string")
    return checked_text(text, where)


def checked_text(text: str, where: str) -> Record:
    """The text, unless it holds half a surrogate pair, which no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return BadRecord(f"{where} has half a surrogate pair at character {error.start}")
    return text


class Chain:
    """A digest of records in their order; tells whether a re-read gave the same.

    >>> one, other = Chain(), Chain()
    >>> one.add("a"), one.add("b"), other.add("ab")
    (None, None, None)
    >>> one.digest == other.digest
    False
    """

    __slots__ = ("_value", "count")

    def __init__(self) -> None:
        self.count = 0
        self._value = b""

    @property
    def digest(self) -> str:
        """The records so far, in 32 hexadecimal digits."""
        return self._value.hex()

    def add(self, record: Record) -> None:
        """One record more."""
        kind, text = (b"+", record) if isinstance(record, str) else (b"-", record.problem)
        hashed = hashlib.blake2b(self._value + kind, digest_size=16)
        hashed.update(text.encode("utf-8", "surrogatepass"))
        self._value = hashed.digest()
        self.count += 1
