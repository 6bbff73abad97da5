"""A text file: one document, taken as it is."""

from __future__ import annotations

from pathlib import Path

from quire.stream.records import BadRecord, Record
from quire.stream.sources.lines import MAX_RECORD_BYTES, damage_named, open_file
from quire.stream.state import read_count


class TextFile:
    """A shard with one document."""

    def __init__(self, path: Path, cursor: object | None) -> None:
        self._path = path
        what = f"the cursor in {path.name}"
        self._given = 0 if cursor is None else read_count(what, cursor, most=1)

    def next(self) -> Record:
        """The whole file."""
        if self._given:
            raise StopIteration
        with open_file(self._path) as file, damage_named(self._path, "somewhere"):
            data = file.read(MAX_RECORD_BYTES + 1)
        self._given = 1
        if len(data) > MAX_RECORD_BYTES:
            return BadRecord(f"{self._path.name} has more than {MAX_RECORD_BYTES} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            where = f"byte {error.start}"
            return BadRecord(f"{self._path.name} is not UTF-8 at {where}: {error.reason}")

    def cursor(self) -> int:
        """Whether the document was given."""
        return self._given
