"""Files to batches of records: one module a kind of file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from quire.corpus.inputs import InputFile
from quire.corpus.options import CorpusOptions
from quire.corpus.readers.batches import BadRecord, Batch, Span
from quire.corpus.readers.json_lines import read_json_lines
from quire.corpus.readers.tables import read_table
from quire.corpus.readers.text_files import read_text_file

__all__ = ["BadRecord", "Batch", "Span", "read_span"]

_READERS = {
    "jsonl": read_json_lines,
    "jsonl.gz": read_json_lines,
    "jsonl.zst": read_json_lines,
    "parquet": read_table,
    "arrow": read_table,
    "txt": read_text_file,
}


def read_span(
    file: InputFile, span: Span, options: CorpusOptions, columns: Mapping[str, str]
) -> Iterator[Batch]:
    """The records of a span, in batches that depend on the file and the options alone."""
    with file.errors_of_reading():
        yield from _READERS[file.kind](file, span, options, columns)
    file.require_unchanged()
