"""A JSON object a line, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quire.corpus.inputs import InputFile
from quire.corpus.options import CorpusOptions
from quire.corpus.readers.batches import BadRecord, Batch, Span
from quire.corpus.readers.expansion import open_stream
from quire.corpus.readers.fields import as_token_table, field_of
from quire.formats.json_records import RecordProblem, parse_record, without_bom
from quire.formats.lines import Line, read_lines


def read_json_lines(
    file: InputFile, span: Span, options: CorpusOptions, columns: Mapping[str, str]
) -> Iterator[Batch]:
    """The records of the lines of a span; a line's number is its record's. Blank lines are none."""
    batch = Batch(file=file.number)
    for line in _lines(file, span, options):
        if batch.num_bytes and batch.num_bytes + line.size > options.batch_bytes:
            yield as_token_table(batch, columns) if options.pretokenized else batch
            batch = Batch(file=file.number)
        batch.num_bytes += line.size
        _read_line(line, batch, options, columns)
    yield as_token_table(batch, columns) if options.pretokenized else batch


def _lines(file: InputFile, span: Span, options: CorpusOptions) -> Iterator[Line]:
    with open_stream(file) as stream:
        if span.start:
            stream.seek(span.start)
        yield from read_lines(
            stream,
            max_bytes=options.max_record_bytes,
            start=span.start,
            stop=span.stop,
            first=span.first_record,
        )


def _read_line(
    line: Line, batch: Batch, options: CorpusOptions, columns: Mapping[str, str]
) -> None:
    try:
        if line.data is None:
            raise RecordProblem(f"has {line.size} bytes, over {options.max_record_bytes}")
        data = without_bom(line.data) if line.offset == 0 else line.data
        if not data.strip():
            return
        batch.values.append(field_of(parse_record(data), options, columns))
        batch.records.append(line.number)
    except RecordProblem as problem:
        batch.bad.append(
            BadRecord(file=batch.file, record=line.number, offset=line.offset, reason=str(problem))
        )
