"""What a source gives: texts, and samples with answers; or why a record is neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from quire.formats.record_kinds import Pair, Sample, num_characters


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be read; ``problem`` says where it is and why, never what it holds."""

    problem: str
    fits: str = ""
    """What fits it better, for `record_kinds.remedy`."""


Record: TypeAlias = str | Sample | Pair | BadRecord


def content_of(record: Record) -> str:
    """All of a record as text, for digests: equal for equal records only."""
    if isinstance(record, str):
        return record
    return record.problem if isinstance(record, BadRecord) else repr(record)


def size_of(record: Record) -> int:
    """About how many characters are tokenized."""
    if isinstance(record, str):
        return len(record)
    return 0 if isinstance(record, BadRecord) else num_characters(record)


def checked_text(text: str, where: str) -> str | BadRecord:
    """The text, unless it holds half a surrogate pair, which no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return BadRecord(f"{where} has half a surrogate pair at character {error.start}")
    return text
