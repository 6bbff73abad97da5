"""One document, for a try."""

from __future__ import annotations

from dataclasses import dataclass

from quire.stream.records import Record, checked_text
from quire.stream.state import read_count


@dataclass(frozen=True, slots=True)
class LocalText:
    """A source of one shard with one document."""

    text: str
    names: tuple[str, ...] = ("local_text",)

    def open(self, number: int, cursor: object | None) -> _OneRecord:
        """The shard, before or behind its document."""
        del number
        given = 0 if cursor is None else read_count("the cursor of local_text", cursor, most=1)
        return _OneRecord(self.text, given)


class _OneRecord:
    def __init__(self, text: str, given: int) -> None:
        self._text, self._given = text, given

    def next(self) -> Record:
        if self._given:
            raise StopIteration
        self._given = 1
        return checked_text(self._text, "data.local_text")

    def cursor(self) -> int:
        return self._given
