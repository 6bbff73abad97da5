"""Files with a JSON object a line. Lines end at ``\\n`` and nowhere else."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from quire.errors import CorruptFile, InvalidState, SourceChanged
from quire.formats.json_records import RecordProblem, parse_record, without_bom
from quire.formats.lines import Line, read_lines
from quire.stream.records import BadRecord, Record, text_of
from quire.stream.state import read_count, read_fields

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
MAX_RECORD_BYTES = 1 << 28
"""A longer line is a bad record, so that a file without line ends does not fill the memory."""
_PIECE = 1 << 20


class JsonLines:
    """A JSON object a line; blank lines are no records, places count decompressed bytes."""

    def __init__(self, path: Path, cursor: object | None, text_key: str) -> None:
        self._path, self._text_key = path, text_key
        self._line, self._offset = _read_cursor(path, cursor)
        self._file = open_file(path, self._offset)
        self._lines = read_lines(
            self._file, max_bytes=MAX_RECORD_BYTES, start=self._offset, first=self._line
        )

    def next(self) -> Record:
        """The text of the next object."""
        line = self._next_line()
        while line.data is not None and not line.data.strip():
            line = self._next_line()
        where = f"{self._path.name}: line {line.number} (byte {line.offset})"
        if line.data is None:
            return BadRecord(f"{where} has more than {MAX_RECORD_BYTES} bytes")
        try:
            record = parse_record(line.data)
        except RecordProblem as problem:
            return BadRecord(f"{where} {problem}")
        text = record.get(self._text_key)
        return text if type(text) is str else text_of(record, self._text_key, where)

    def cursor(self) -> dict[str, int]:
        """The line behind the one that was given last."""
        return {"line": self._line, "offset": self._offset}

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def _next_line(self) -> Line:
        with damage_named(self._path, f"behind line {self._line}"):
            line = next(self._lines)
        self._line, self._offset = line.number + 1, line.offset + line.size
        if line.offset == 0 and line.data is not None:
            return line._replace(data=without_bom(line.data))
        return line


@contextmanager
def damage_named(path: Path, where: str) -> Iterator[None]:
    """Raises what a decompressor says of damaged data as an error that is not worth a retry."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CorruptFile(f"{path} is damaged {where}: {error}; fetch it again") from error
    except OSError as error:
        if error.errno is None and "zstd" in str(error).lower():  # as Arrow says it
            raise CorruptFile(f"{path} is damaged {where}: {error}; fetch it again") from error
        raise


def _read_cursor(path: Path, cursor: object | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    fields = read_fields(f"the cursor in {path.name}", cursor, ("line", "offset"))
    line = read_count(f"the cursor in {path.name}: line", fields["line"])
    return line, read_count(f"the cursor in {path.name}: offset", fields["offset"])


def open_file(path: Path, offset: int = 0) -> BinaryIO:
    """The file, decompressed, from a place on."""
    compression = COMPRESSIONS.get(path.suffix.lower())
    if compression is None:
        return _open_plain(path, offset)
    if compression == "gzip":
        file = cast(BinaryIO, gzip.open(path))  # noqa: SIM115 - its owner closes it
    else:
        import pyarrow as pa

        file = cast(BinaryIO, io.BufferedReader(pa.input_stream(str(path), compression="zstd")))
    _skip(file, offset, path)
    return file


def _open_plain(path: Path, offset: int) -> BinaryIO:
    file = path.open("rb")
    if offset:
        file.seek(offset - 1)
        before = file.read(1)
        if before != b"\n" and (not before or file.read(1)):  # the last line may have no \n
            file.close()
            raise InvalidState(
                f"the cursor in {path.name} is at byte {offset}, where no line ends; use a state "
                "as get_state() gave it, with the files as they were"
            )
    return file


def _skip(file: BinaryIO, offset: int, path: Path) -> None:
    """Read on to a place; a compressed file has no other way."""
    while offset:
        piece = file.read(min(offset, _PIECE))
        if not piece:
            raise SourceChanged(f"{path.name} ends {offset} bytes before the place of the cursor")
        offset -= len(piece)
