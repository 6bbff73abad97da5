"""What a source gives: texts, samples with answers, or tokens; or why a record is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from quire.formats.record_kinds import Pair, Sample, num_characters

Tokens: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be read; ``problem`` says where it is and why, never what it holds."""

    problem: str
    fits: str = ""
    """What fits it better, for `record_kinds.remedy`."""


Record: TypeAlias = str | Sample | Pair | Tokens | BadRecord


def content_of(record: Record) -> str:
    """All of a record as text, for digests: equal for equal records only."""
    if isinstance(record, str):
        return record
    if isinstance(record, np.ndarray):
        return record.tobytes().decode("latin-1")
    return record.problem if isinstance(record, BadRecord) else repr(record)


def size_of(record: Record) -> int:
    """About how many characters are tokenized, or how many tokens there are."""
    if isinstance(record, str | np.ndarray):
        return len(record)
    return 0 if isinstance(record, BadRecord) else num_characters(record)


def checked_text(text: str, where: str) -> str | BadRecord:
    """The text, unless it holds half a surrogate pair, which no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return BadRecord(f"{where} has half a surrogate pair at character {error.start}")
    return text
