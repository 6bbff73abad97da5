"""Reading documents from files: one module per format, one table of formats.

`files.find_files` finds the files, and `InputFile.read` yields their records in batches, from any
position on: `corpus` reads spans of files, `stream` continues from a saved position.

To add a format, write one module here that defines ``FORMAT``, and add a line for its suffix to
`FORMATS`. This is all of a format for CSV files::

    import csv
    import io

    from quire.formats.record_kinds import RecordProblem
    from quire.formats.format import Format


    class Csv(Format):
        name = "csv"

        def parse(self, stream):
            with io.TextIOWrapper(stream, "utf-8", newline="") as text:
                for row in csv.DictReader(text):
                    yield RecordProblem("has more values than names") if None in row else row


    FORMAT = Csv()

`format.Format` has the defaults: batches, positions, resuming, compressed files, a sample to find
out what the records hold. A format with positions of its own or with an index to divide a file by
overrides those methods; one that yields Arrow data is a `tables.TableFormat`.

`open_corpus` opens tokens that another system wrote, to be read in place; see `corpora`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from quire.formats.corpora import open_corpus
    from quire.formats.format import Format

__all__ = ["COMPRESSIONS", "FORMATS", "format_of", "known_suffixes", "open_corpus"]

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",  # one object per line, as C4 and others are published
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".py": "text",
    ".idx": "megatron",
    ".ds": "datatrove",
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


def known_suffixes(*, without: tuple[str, ...] = ()) -> str:
    """The suffixes that can be read, for messages.

    >>> known_suffixes().startswith(".jsonl, .ndjson, .json, .parquet, ")
    True
    """
    listed = ", ".join(suffix for suffix in FORMATS if suffix not in without)
    return f"{listed}; except for tables also with {', '.join(COMPRESSIONS)}"


def _split(name: str) -> tuple[str, str]:
    stem, dot, suffix = name.rpartition(".")
    return (stem, dot + suffix) if dot else (name, "")


def format_named(name: str) -> Format:
    """The format of this name, such as ``text``."""
    return _load(name)


@cache
def _load(module: str) -> Format:
    return cast("Format", import_module(f"quire.formats.{module}").FORMAT)


def __getattr__(name: str) -> object:
    if name != "open_corpus":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("quire.formats.corpora").open_corpus
