"""Errors of partitions: readable in every process, with the place in the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quire.corpus.partitions import Partition
from quire.errors import QuireError, WorkerError
from quire.formats.files import InputFile
from quire.formats.format import Span

_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A partition that will not be committed, and the reason."""

    partition: Partition
    error: Exception


def portable_error(error: Exception, partition: Partition, note: str) -> Exception:
    """The error in a form that every process can unpickle, with its traceback as a note."""
    if isinstance(error, QuireError):
        portable: Exception = type(error)(*error.args)
    else:
        portable = WorkerError(
            f"partition {partition.number} failed with {type(error).__name__}: {first_line(error)}"
        )
    portable.add_note(note)
    return portable


def first_line(error: object) -> str:
    """The first line of an error that may contain a whole traceback."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def failure_of(failures: Sequence[Failure], files: Sequence[InputFile]) -> Exception:
    """The error of the first failure in input order; its message names the others."""
    first, *others = sorted(failures, key=lambda failure: failure.partition.number)
    more = ", ".join(str(other.partition.number) for other in others[:_SHOWN])
    also = f"; so did {len(others)} more ({more}{', …' if len(others) > _SHOWN else ''})"
    error = type(first.error)(
        f"{first.error}\npartition {first.partition.number} ({positions(first.partition, files)}) "
        f"failed{also if others else ''}. Committed shards are kept: fix the cause, then resume"
    )
    for note in getattr(first.error, "__notes__", ()):
        error.add_note(note)
    return error


def positions(partition: Partition, files: Sequence[InputFile]) -> str:
    """Where in the input the documents of a partition are."""
    shown = [_position(span, files[span.file]) for span in partition.spans[:_SHOWN]]
    left = len(partition.spans) - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")


def _position(span: Span, file: InputFile) -> str:
    if span.stop is None or (span.start == 0 and span.stop == file.size):
        return f"all of {file.path}"
    if file.format.has_byte_positions:
        first = f"record {span.first_record}, byte {span.start}"
        return f"{file.path} from {first} to byte {span.stop}"
    return f"{file.path} from record {span.start} to {span.stop - 1}"
