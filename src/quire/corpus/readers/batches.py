"""What every reader gives: batches of records, and those that are none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa


class Conversation(NamedTuple):
    """Messages, and the tools that they may call, as the record has them."""

    messages: list[Any]
    tools: object = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A part of one input file."""

    file: int
    start: int
    """The first byte of files of lines; the first record of tables."""
    stop: int | None
    """Where the next span starts; None: at the end of the file."""
    first_record: int
    size: int
    """Bytes of text, as far as they are known before reading."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRecord:
    """A record that cannot be packed: where it stands and why, never what it says."""

    file: int
    record: int
    offset: int | None
    """In bytes of decompressed text; None in tables."""
    reason: str


@dataclass(kw_only=True, slots=True)
class Batch:
    """Some records of one file, one after the other."""

    file: int
    records: list[int] = field(default_factory=list)
    """The number of each good record in its file."""
    values: list[Any] | pa.Table = field(default_factory=list)
    """A text, a conversation, or tokens and their columns, of each good record."""
    num_bytes: int = 0
    bad: list[BadRecord] = field(default_factory=list)
