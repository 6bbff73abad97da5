"""Files of lines: a JSON object or a text each. Lines end at ``\\n`` and nowhere else."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from pathlib import Path
from typing import IO, cast

from quire.errors import CorruptFile, InvalidState, SourceChanged
from quire.stream.records import BadRecord, Record, checked_text, text_of
from quire.stream.state import read_count, read_fields

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
_BOM = b"\xef\xbb\xbf"
_PIECE = 1 << 20


class _Lines:
    """The lines of one file with their places, counted in decompressed bytes."""

    def __init__(self, path: Path, cursor: object | None) -> None:
        self._path = path
        self._line, self._offset = _read_cursor(path, cursor)
        self._file = _open(path, self._offset)

    def cursor(self) -> dict[str, int]:
        return {"line": self._line, "offset": self._offset}

    def _next_line(self) -> bytes:
        try:
            line = self._file.readline()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CorruptFile(
                f"{self._path} is damaged behind line {self._line}: {error}; fetch it again"
            ) from error
        except OSError as error:
            if "decompress" in str(error).lower():  # Arrow's zstd
                raise CorruptFile(f"{self._path} is damaged: {error}; fetch it again") from error
            raise
        if not line:
            self._file.close()
            raise StopIteration
        first = self._offset == 0
        self._offset += len(line)
        self._line += 1
        return line.removeprefix(_BOM) if first else line

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def _where(self, line: bytes) -> str:
        return f"{self._path.name}: line {self._line} (byte {self._offset - len(line)})"


class TextLines(_Lines):
    """A document a line; an empty line is an empty document."""

    def next(self) -> Record:
        """The next line, without its ``\\n``."""
        line = self._next_line()
        try:
            return line.removesuffix(b"\n").decode()
        except UnicodeDecodeError as error:
            return BadRecord(f"{self._where(line)} is not UTF-8: {error.reason}")


class JsonLines(_Lines):
    """A JSON object a line; blank lines are no records."""

    def __init__(self, path: Path, cursor: object | None, text_key: str) -> None:
        super().__init__(path, cursor)
        self._text_key = text_key

    def next(self) -> Record:
        """The text of the next object."""
        line = self._next_line()
        while not line.strip():
            line = self._next_line()
        try:
            record = _DECODER.decode(line.decode())
        except UnicodeDecodeError as error:
            return BadRecord(f"{self._where(line)} is not UTF-8: {error.reason}")
        except (ValueError, RecursionError) as error:
            return BadRecord(f"{self._where(line)} is not JSON: {error}")
        if type(record) is dict and type(text := record.get(self._text_key)) is str:
            return checked_text(text, self._where(line))
        return text_of(record, self._text_key, self._where(line))


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key stands twice")
    return record


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)


def _read_cursor(path: Path, cursor: object | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    fields = read_fields(f"the cursor in {path.name}", cursor, ("line", "offset"))
    line = read_count(f"the cursor in {path.name}: line", fields["line"])
    return line, read_count(f"the cursor in {path.name}: offset", fields["offset"])


def _open(path: Path, offset: int) -> IO[bytes]:
    compression = COMPRESSIONS.get(path.suffix.lower())
    if compression is None:
        return _open_plain(path, offset)
    if compression == "gzip":
        file = cast(IO[bytes], gzip.open(path))  # noqa: SIM115 - its owner closes it
    else:
        import pyarrow as pa

        file = cast(IO[bytes], io.BufferedReader(pa.input_stream(str(path), compression="zstd")))
    _skip(file, offset, path)
    return file


def _open_plain(path: Path, offset: int) -> IO[bytes]:
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


def _skip(file: IO[bytes], offset: int, path: Path) -> None:
    """Read on to a place; a compressed file has no other way."""
    while offset:
        piece = file.read(min(offset, _PIECE))
        if not piece:
            raise SourceChanged(f"{path.name} ends {offset} bytes before the place of the cursor")
        offset -= len(piece)
