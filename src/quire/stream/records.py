"""What a source provides: texts, and records from which no text can be read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record without a text; ``problem`` says where it is and why, never what it holds."""

    problem: str


Record: TypeAlias = "str | BadRecord"


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
