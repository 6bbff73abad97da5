"""The input files of a corpus: found, fingerprinted, and read in spans."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO, TypeVar

from quire.corpus.options import CorpusOptions
from quire.corpus.output import is_inside
from quire.errors import InvalidOption, SourceError, StorageError
from quire.formats.fields import Fields
from quire.formats.files import InputFile, find_paths
from quire.formats.format import Batch, Span
from quire.storage import AnyPath, Named, RemotePath, each

Result = TypeVar("Result")
_BLOCK, _NUM_BLOCKS = 1 << 16, 16
FINGERPRINT = (
    f"sha256 of the size and of {_NUM_BLOCKS} blocks of {_BLOCK} bytes spread evenly over the "
    "file, or of all of it where it is no larger"
)


def find_inputs(named: Iterable[Named], out: AnyPath | None = None) -> tuple[InputFile, ...]:
    """All files that are named, with fingerprints.

    What a glob finds inside the output ``out`` was written there by an earlier run of the same,
    and is not an input.
    """
    found = find_paths(named, exclude=lambda path: out is not None and is_inside(path, out))
    in_stores = any(isinstance(path, RemotePath) for path, _ in found)
    numbered = ((number, *pair) for number, pair in enumerate(found))
    return tuple(each(lambda known: _input_file(*known), numbered, at_once=in_stores))


def of_each(files: Sequence[InputFile], function: Callable[[InputFile], Result]) -> list[Result]:
    """What the function returns for every file; at once if any of them is in a store."""
    in_stores = any(isinstance(file.path, RemotePath) for file in files)
    return each(function, files, at_once=in_stores)


def fields_to_read(options: CorpusOptions, columns: Mapping[str, str]) -> Fields:
    """What is read of each record; ``columns`` are the per-token columns, where tokens are read."""
    return Fields(
        text_column=options.text_column,
        messages_column=options.messages_column,
        tools_column=options.tools_column,
        tokens_column=options.tokens_column,
        token_columns=columns,
        allow_other_columns=bool(options.columns),
        max_record_bytes=options.max_record_bytes,
        batch_bytes=1 if options.partition_size is None else options.batch_bytes,
    )


def read_span(
    file: InputFile, span: Span, options: CorpusOptions, columns: Mapping[str, str]
) -> Iterator[Batch]:
    """The records of a span."""
    with read_errors(file):
        yield from file.read(span, fields_to_read(options, columns))


@contextmanager
def read_errors(file: InputFile) -> Iterator[None]:
    """Turn errors of the disk into errors that name the file."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise SourceError(
            f"{file.path} cannot be read: {error.strerror or error}; committed shards are kept: "
            "fix the cause, then resume"
        ) from error


def manifest_entry(file: InputFile) -> dict[str, object]:
    """What the manifest records of an input."""
    return {
        "name": file.name,
        "kind": file.kind,
        "bytes": file.size,
        "fingerprint": file.fingerprint,
    }


def _input_file(number: int, path: AnyPath, name: str) -> InputFile:
    try:
        fingerprint, size, changed_at = _fingerprint(path)
    except StorageError:
        raise
    except OSError as error:
        raise InvalidOption(f"{path} cannot be read: {error.strerror}") from error
    return InputFile(
        number=number,
        path=path,
        name=name,
        size=size,
        fingerprint=fingerprint,
        changed_at=changed_at,
    )


def _fingerprint(path: AnyPath) -> tuple[str, int, int]:
    """The fingerprint, the size and the time of the last change."""
    if isinstance(path, RemotePath):
        with path.open_ranges() as ranges:
            now = path.stat()
            return _digest(ranges, now.st_size), now.st_size, now.st_mtime_ns
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        return _digest(file, stat.st_size), stat.st_size, stat.st_mtime_ns


def _digest(file: BinaryIO, size: int) -> str:
    digest = hashlib.sha256(str(size).encode())
    if size <= _BLOCK * _NUM_BLOCKS:
        digest.update(file.read())
    else:
        for block in range(_NUM_BLOCKS):
            file.seek((size - _BLOCK) * block // (_NUM_BLOCKS - 1))
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()
