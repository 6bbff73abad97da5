"""Text files: one document each, without any change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quire.errors import InvalidOption
from quire.formats.fields import Fields
from quire.formats.files import InputFile
from quire.formats.format import Format, Record, Span, require_reached
from quire.formats.record_kinds import KINDS, TEXT, RecordProblem


class TextFile(Format):
    """The whole file is its only record, number 0."""

    name = "txt"
    is_plain_text = True

    def records(self, file: InputFile, span: Span, fields: Fields) -> Iterator[Record]:
        """The text, if the span starts before it."""
        if fields.token_columns or fields.kind != TEXT:
            holds = "tokens" if fields.token_columns else KINDS[fields.kind].holds
            raise InvalidOption(f"{file.path} is plain text, which has no {holds}")
        require_reached(file, 1, span)
        if not span.start:
            yield _record(file, fields)


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
