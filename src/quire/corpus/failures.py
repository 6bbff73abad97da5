"""Partitions that failed for good, in words: which, where in the input, and what stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from quire.corpus.inputs import InputFile
from quire.corpus.partitions import Partition
from quire.corpus.readers.batches import Span

_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A partition that will not be committed, and why."""

    partition: Partition
    error: Exception


def failure_of(failures: Sequence[Failure], files: Sequence[InputFile]) -> Exception:
    """The error of the first one in input order, which also names the others."""
    failures = sorted(failures, key=lambda failure: failure.partition.number)
    first, *others = failures
    more = ", ".join(str(other.partition.number) for other in others[:_SHOWN])
    also = f"; so did {len(others)} more ({more}{', …' if len(others) > _SHOWN else ''})"
    error = type(first.error)(
        f"{first.error}\npartition {first.partition.number} ({positions(first.partition, files)}) "
        f"failed{also if others else ''}. What is committed stays: mend the cause, then resume"
    )
    for note in getattr(first.error, "__notes__", ()):
        error.add_note(note)
    return error


def positions(partition: Partition, files: Sequence[InputFile]) -> str:
    """Where the documents of a partition stand in the input."""
    shown = [_position(span, files[span.file]) for span in partition.spans[:_SHOWN]]
    left = len(partition.spans) - len(shown)
    return ", ".join(shown) + (f" and {left} more places" if left else "")


def _position(span: Span, file: InputFile) -> str:
    if span.stop is None or (span.start == 0 and span.stop == file.size):
        return f"all of {file.path}"
    if file.kind == "jsonl":
        first = f"record {span.first_record}, byte {span.start}"
        return f"{file.path} from {first} to byte {span.stop}"
    return f"{file.path} from record {span.start} to {span.stop - 1}"
