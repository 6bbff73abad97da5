"""Compressed files as streams that notice damage, and that do not expand without end."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any, BinaryIO, cast

import pyarrow as pa

from quire.corpus.inputs import InputFile
from quire.errors import CorruptFile, StorageError
from quire.formats.bounded_tables import Expansion
from quire.storage import AnyPath, RemotePath


def open_stream(file: InputFile) -> BinaryIO:
    """The bytes of a file, decompressed where its kind says so."""
    file.require_unchanged()
    if file.kind == "jsonl.gz":
        local = file.path.open() if isinstance(file.path, RemotePath) else file.path
        return _buffered(gzip.open(local), file)
    if file.kind == "jsonl.zst":
        return _buffered(_zstd(file.path), file)
    return file.path.open("rb")


def _zstd(path: AnyPath) -> object:
    if isinstance(path, RemotePath):
        return pa.CompressedInputStream(pa.PythonFile(path.open(), mode="r"), "zstd")
    return pa.input_stream(str(path), compression="zstd")


def _buffered(stream: object, file: InputFile) -> BinaryIO:
    return cast(
        BinaryIO, io.BufferedReader(_Bounded(cast(io.BufferedIOBase, stream), file), 1 << 20)
    )


class _Bounded(io.RawIOBase):
    def __init__(self, stream: io.BufferedIOBase, file: InputFile) -> None:
        self._stream, self._file, self._expanded = stream, file, 0
        self._expansion = Expansion(file.path, file.size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer
        try:
            # Arrow's `read` never gives back the memory of a read that failed.
            size = self._stream.readinto(buffer)
        except StorageError:
            raise
        except (EOFError, zlib.error, OSError, pa.ArrowException) as error:
            raise CorruptFile(
                f"{self._file.path} is damaged behind byte {self._expanded} of its text: {error}; "
                "fetch it again"
            ) from error
        self._expanded += size
        self._expansion.add(size)
        return size

    def close(self) -> None:
        self._stream.close()
        super().close()
