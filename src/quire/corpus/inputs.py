"""The input files of a corpus: found, fingerprinted, and read in spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from quire.corpus.options import CorpusOptions
from quire.corpus.output import is_inside
from quire.errors import InvalidOption, SourceError, StorageError
from quire.formats.fields import Fields
from quire.formats.files import FoundFile, InputFile, find_paths
from quire.formats.fingerprints import fingerprint_of_file
from quire.formats.format import Batch, Span
from quire.formats.record_kinds import TEXT
from quire.storage import AnyPath, Named, RemotePath, each

Result = TypeVar("Result")


def find_inputs(
    named: Iterable[Named],
    out: AnyPath | None = None,
    pattern: str | None = None,
    format: str | None = None,  # noqa: A002
) -> tuple[InputFile, ...]:
    """All files that are named, with fingerprints.

    Files that a glob finds inside the output ``out`` were written by an earlier run and are not
    inputs. A ``pattern`` selects files of folders; a ``format`` is that of a tokenized corpus.
    """
    found = find_paths(
        named,
        exclude=lambda path: out is not None and is_inside(path, out),
        pattern=pattern,
        format=format,
    )
    in_stores = any(isinstance(file.path, RemotePath) for file in found)
    numbered = enumerate(found)
    return tuple(each(lambda known: _input_file(*known), numbered, at_once=in_stores))


def of_each(files: Sequence[InputFile], function: Callable[[InputFile], Result]) -> list[Result]:
    """The function's result for every file; computed in threads if any file is in a store."""
    in_stores = any(isinstance(file.path, RemotePath) for file in files)
    return each(function, files, at_once=in_stores)


def fields_to_read(
    options: CorpusOptions, columns: Mapping[str, str], *, is_chat: bool = False
) -> Fields:
    """What is read of each record; ``columns`` are the per-token columns, where tokens are read."""
    return Fields(
        kind=str(options.record_kind or TEXT),
        is_chat=is_chat,
        text_column=options.text_column,
        messages_column=options.messages_column,
        tools_column=options.tools_column,
        tokens_column=options.tokens_column,
        images_column=options.images_column,
        token_columns=columns,
        allow_other_columns=bool(options.columns),
        max_record_bytes=options.max_record_bytes,
        batch_bytes=1 if options.partition_size is None else options.batch_bytes,
    )


def read_span(
    file: InputFile,
    span: Span,
    options: CorpusOptions,
    columns: Mapping[str, str],
    *,
    is_chat: bool = False,
) -> Iterator[Batch]:
    """The records of a span."""
    with read_errors(file):
        yield from file.read(span, fields_to_read(options, columns, is_chat=is_chat))


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
    entry: dict[str, object] = {
        "name": file.name,
        "kind": file.kind,
        "bytes": file.size,
        "fingerprint": file.fingerprint,
    }
    if file.text_column is not None:
        entry["text_column"] = file.text_column
    return {**entry, "beside": dict(file.beside)} if file.beside else entry


def _input_file(number: int, file: FoundFile) -> InputFile:
    path = file.path
    try:
        fingerprint, size, changed_at = fingerprint_of_file(path)
        known = InputFile(number=number, size=size, **file._asdict())
        others = known.format.beside(path)
        beside = tuple((one.name, fingerprint_of_file(one)[0]) for one in others)
    except StorageError:
        raise
    except OSError as error:
        raise InvalidOption(f"{path} cannot be read: {error.strerror}") from error
    return InputFile(
        number=number,
        size=size,
        fingerprint=fingerprint,
        beside=beside,
        changed_at=changed_at,
        **file._asdict(),
    )
