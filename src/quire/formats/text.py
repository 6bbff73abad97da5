"""Text files: one document each, without any change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quire.errors import InvalidOption, InvalidState
from quire.formats.fields import Fields, RecordProblem
from quire.formats.files import InputFile
from quire.formats.format import Batch, Format, Record, Span, batched


class TextFile(Format):
    """The whole file is its only record, number 0."""

    name = "txt"
    is_compressible = True
    is_plain_text = True

    def read(self, file: InputFile, span: Span, fields: Fields) -> Iterator[Batch]:
        """The text, if the span starts before it."""
        if fields.token_columns or fields.messages_column is not None:
            raise InvalidOption(f"{file.path} is plain text, which has no tokens or messages")
        if span.start > 1:
            raise InvalidState(f"{file.path} has 1 document, but {span.start} were read from it")
        if not span.start:
            yield from batched(file, [_record(file, fields)], fields)


FORMAT = TextFile()


def _record(file: InputFile, fields: Fields) -> Record:
    limit, size, offset = fields.max_record_bytes, file.size, 0
    data = b""
    value: Mapping[str, str] | RecordProblem
    if file.compression or size <= limit:
        with file.open() as stream:
            data = stream.read(limit + 1)
        size = len(data)
    if size > limit:
        shown = f"more than {limit} bytes" if file.compression else f"{size} bytes, over {limit}"
        value = RecordProblem(f"has {shown}")
    else:
        try:
            value = {fields.text_column: data.decode("utf-8")}
        except UnicodeDecodeError as error:
            offset = error.start
            value = RecordProblem(f"is not UTF-8: {error.reason}")
    return Record(number=0, end=1, size=size, value=value, offset=offset)
