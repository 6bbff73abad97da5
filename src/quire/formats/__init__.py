"""Reading documents from files: one module per format, one table of formats.

`files.find_files` finds the files, and `InputFile.read` yields their records in batches, from any
position on: `corpus` reads spans of files, `stream` continues from a saved position.

To add a format, write one module here that defines ``FORMAT`` and add one line to `FORMATS`::

    class Csv(Format):
        name = "csv"

        def read(self, file, span, fields):
            with file.open() as stream:
                rows = csv.DictReader(io.TextIOWrapper(stream, "utf-8"))
                records = (
                    Record(number=number, end=number + 1, size=len(str(row)), value=row)
                    for number, row in enumerate(rows)
                    if number >= span.start
                )
                yield from batched(file, records, fields)

    FORMAT = Csv()

`format.Format` lists what a format may define beyond `read`: how to split a file into spans, its
schema, a sample of its records.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from quire.formats.format import Format

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",  # one object per line, as C4 and others are published
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "text",
    ".text": "text",
}
"""Suffix to the module of this package that reads such files."""

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
"""Suffixes that may follow those of formats which can be compressed."""


def format_of(name: str) -> tuple[Format | None, str | None]:
    """The format and the compression of a file of this name; no format if the suffix is unknown.

    >>> found, compression = format_of("a.jsonl.GZ")
    >>> found.name, compression
    ('jsonl', 'gzip')
    """
    stem, suffix = _split(name.lower())
    compression = COMPRESSIONS.get(suffix)
    if compression is not None:
        suffix = _split(stem)[1]
    found = _load(FORMATS[suffix]) if suffix in FORMATS else None
    if found is not None and compression is not None and not found.is_compressible:
        return None, None
    return found, compression


def known_suffixes(*, without: str = "") -> str:
    """The suffixes that can be read, for messages.

    >>> known_suffixes(without=".json")
    '.jsonl, .ndjson, .parquet, .arrow, .txt, .text; except for tables also with .gz, .zst, .zstd'
    """
    listed = ", ".join(suffix for suffix in FORMATS if suffix != without)
    return f"{listed}; except for tables also with {', '.join(COMPRESSIONS)}"


def _split(name: str) -> tuple[str, str]:
    stem, dot, suffix = name.rpartition(".")
    return (stem, dot + suffix) if dot else (name, "")


@cache
def _load(module: str) -> Format:
    return cast("Format", import_module(f"quire.formats.{module}").FORMAT)
