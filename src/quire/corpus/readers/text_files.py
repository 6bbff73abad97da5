"""A document a file, taken as it is: no character is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quire.corpus.inputs import InputFile
from quire.corpus.options import CorpusOptions
from quire.corpus.readers.batches import BadRecord, Batch, Span
from quire.errors import InvalidOption


def read_text_file(
    file: InputFile, span: Span, options: CorpusOptions, columns: Mapping[str, str]
) -> Iterator[Batch]:
    """The whole file as its only record, number 0."""
    if options.pretokenized or options.messages_key is not None:
        raise InvalidOption(f"{file.path} is text, but tokens or messages were asked for")
    batch = Batch(file=file.number, num_bytes=file.size)
    try:
        if file.size > options.max_record_bytes:
            raise ValueError(f"has {file.size} bytes, over {options.max_record_bytes}")
        with file.open() as stream:
            batch.values.append(stream.read().decode("utf-8"))
        batch.records.append(0)
    except UnicodeDecodeError as error:
        batch.bad.append(_bad(file, f"is not UTF-8: {error.reason}", error.start))
    except ValueError as error:
        batch.bad.append(_bad(file, str(error), 0))
    yield batch


def _bad(file: InputFile, reason: str, offset: int) -> BadRecord:
    return BadRecord(file=file.number, record=0, offset=offset, reason=reason)
