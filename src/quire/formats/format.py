"""What every format provides: the records of a file in batches, each with its position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import pyarrow as pa

from quire.errors import CorruptFile, InvalidState, QuireError
from quire.formats.fields import Fields, as_token_table
from quire.formats.record_kinds import RecordProblem
from quire.printable import counted
from quire.storage import AnyPath

if TYPE_CHECKING:
    from quire.formats.files import InputFile

_EXPANSION = 4
"""How many times larger the text of a compressed file is assumed to be, before it is read."""
_SAMPLE = 100
"""Records in a sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A part of one input file; a cursor is a span without a ``stop``."""

    file: int = 0
    start: int = 0
    """The first byte in files of lines; the first record in others."""
    stop: int | None = None
    """Where the next span starts; None: at the end of the file."""
    first_record: int = 0
    size: int = 0
    """Bytes of text, as far as they are known before reading."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRecord:
    """A record that cannot be packed: where it is and why, never what it contains."""

    file: int
    record: int
    offset: int | None
    """In bytes of decompressed text; None in tables."""
    reason: str
    fits: str = ""
    """What fits it better, for `record_kinds.remedy`."""


@dataclass(kw_only=True, slots=True)
class Batch:
    """Consecutive records of one file."""

    file: int
    records: list[int] = field(default_factory=list)
    """The number of each good record in its file."""
    values: list[Any] | pa.Table = field(default_factory=list)
    """The text, the conversation or the token columns of each good record."""
    num_bytes: int = 0
    bad: list[BadRecord] = field(default_factory=list)
    offsets: list[int | None] = field(default_factory=list)
    """The first byte of each good record; empty in tables, which have none."""
    ends: list[int] = field(default_factory=list)
    """Where the record after each record starts, bad ones included; empty in formats whose
    positions are record numbers."""

    def in_order(self) -> Iterator[tuple[int, int, Any]]:
        """(number, start of the next record, value or `BadRecord`) of every record."""
        found = list(zip(self.records, self.values, strict=True))
        if self.bad:
            found += [(bad.record, bad) for bad in self.bad]
            found.sort(key=lambda pair: pair[0])
        ends = self.ends or [number + 1 for number, _ in found]
        for (number, value), end in zip(found, ends, strict=True):
            yield number, end, value


class Record(NamedTuple):
    """One record as a format reads it."""

    number: int
    end: int
    """Where the next record starts."""
    size: int
    """Its bytes in the file."""
    value: Mapping[str, Any] | RecordProblem | None
    """None for a place without a record, such as a blank line; only its bytes count."""
    offset: int | None = None
    """Its first byte in the text."""


class Format:
    """How one kind of file is read.

    A subclass defines ``name`` and `parse`; everything else has a default. Formats whose records
    have positions of their own define `records` instead, and those with Arrow data define `read`
    (see `tables.TableFormat`).
    """

    name: str
    """Recorded in manifests."""
    unit = "record"
    """What messages call a record."""
    is_compressible = True
    """Whether such files may be compressed as a whole, such as ``.jsonl.gz``."""
    has_byte_positions = False
    """Whether spans count bytes of text; otherwise they count records."""
    is_plain_text = False
    """Whether files have no fields: neither messages nor tokens."""

    def parse(self, stream: BinaryIO) -> Iterable[Mapping[str, Any] | RecordProblem]:
        """The records of a whole file in order; for a bad one, what is wrong with it."""
        raise NotImplementedError(f"{type(self).__name__} must define parse, records or read")

    def records(self, file: InputFile, span: Span, fields: Fields) -> Iterator[Record]:
        """The records of a span with their positions; by default, `parse` is run to the span."""
        number = 0
        with file.open() as stream:
            try:
                for value in islice(self.parse(stream), span.stop):
                    if number >= span.start:
                        yield _numbered(number, value, fields.max_record_bytes)
                    number += 1
            except (QuireError, OSError, NotImplementedError):
                raise
            except Exception as error:  # a parser of another library may raise anything
                raise CorruptFile(
                    f"{file.path}: {self.unit} {number} cannot be read: {error}; repair the file"
                ) from error
        require_reached(file, number, span)

    def read(self, file: InputFile, span: Span, fields: Fields) -> Iterator[Batch]:
        """The records of a span; the batches depend only on the file and the fields."""
        return batched(file, self.records(file, span, fields), fields)

    def spans(self, file: InputFile, fields: Fields, limit: int) -> Iterator[Span]:
        """Spans of about ``limit`` bytes of text that cover the file; by default one."""
        del limit
        yield Span(file=file.number, size=self.text_size(file, fields))

    def text_size(self, file: InputFile, fields: Fields) -> int:
        """Bytes of text, as far as they are known without reading the file."""
        del fields
        return file.size if file.compression is None else _EXPANSION * file.size

    def beside(self, path: AnyPath) -> list[AnyPath]:
        """Other files that are read with one."""
        del path
        return []

    def schema(self, file: InputFile) -> pa.Schema | None:
        """The columns of the file, if the format declares them."""
        return None

    def sample(self, file: InputFile, fields: Fields) -> Iterator[Mapping[str, Any]]:
        """The first records of a file without a schema, as far as they can be read."""
        with suppress(NotImplementedError):  # a format that defines only `read` has no sample
            for record in islice(self.records(file, Span(), fields), _SAMPLE):
                if isinstance(record.value, Mapping):
                    with suppress(RecordProblem):
                        yield fields.with_tokens(record.value)


def _numbered(number: int, value: Mapping[str, Any] | RecordProblem, max_bytes: int) -> Record:
    size = len(str(value).encode("utf-8", "surrogatepass"))
    if size > max_bytes:
        value = RecordProblem(f"has {size} bytes, over {max_bytes}")
    return Record(number=number, end=number + 1, size=size, value=value)


def require_reached(file: InputFile, num_records: int, span: Span) -> None:
    """Raise if a span starts after the last of a file's records."""
    if num_records < span.start:
        held = counted(num_records, file.format.unit)
        raise InvalidState(f"{file.path} has {held}, but {span.start} were read from it")


def batched(file: InputFile, records: Iterable[Record], fields: Fields) -> Iterator[Batch]:
    """Batches of ``fields.batch_bytes`` from single records; problems become bad records.

    Records that precede an error are yielded before it is raised.
    """
    batch = Batch(file=file.number)
    try:
        for record in records:
            if batch.num_bytes and batch.num_bytes + record.size > fields.batch_bytes:
                yield _finished(batch, fields)
                batch = Batch(file=file.number)
            batch.num_bytes += record.size
            _add(record, batch, fields)
    except Exception:
        if batch.ends:
            yield _finished(batch, fields)
        raise
    yield _finished(batch, fields)


def _add(record: Record, batch: Batch, fields: Fields) -> None:
    if record.value is None:
        return
    batch.ends.append(record.end)
    try:
        if isinstance(record.value, RecordProblem):
            raise record.value
        batch.values.append(fields.of(record.value))
        batch.records.append(record.number)
        batch.offsets.append(record.offset)
    except RecordProblem as problem:
        batch.bad.append(
            BadRecord(
                file=batch.file,
                record=record.number,
                offset=record.offset,
                reason=str(problem),
                fits=problem.fits or "",
            )
        )


def _finished(batch: Batch, fields: Fields) -> Batch:
    """The batch, with token columns as Arrow; records that do not fit become bad ones."""
    if not fields.token_columns:
        return batch
    table, fits = as_token_table(batch.values, fields.token_columns)
    for record, one_fits in zip(batch.records, fits, strict=True):
        if not one_fits:
            reason = f"has numbers that are too large under {' or '.join(fields.token_columns)}"
            batch.bad.append(BadRecord(file=batch.file, record=record, offset=None, reason=reason))
    batch.records = [r for r, one_fits in zip(batch.records, fits, strict=True) if one_fits]
    batch.offsets = [o for o, one_fits in zip(batch.offsets, fits, strict=True) if one_fits]
    batch.values = table
    return batch
