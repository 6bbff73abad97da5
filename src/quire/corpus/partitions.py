"""A corpus cut into partitions: by the order and size of its text, never by who does the work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from quire.corpus.inputs import InputFile
from quire.corpus.options import CorpusOptions
from quire.corpus.readers.batches import Span
from quire.corpus.readers.tables import table_chunks, wanted_names
from quire.errors import InvalidOption
from quire.formats.lines import line_starts
from quire.storage import RemotePath, each

_SHRUNK = 4
"""How many times larger the text of a compressed file is taken to be, before it is read."""
MAX_PARTITIONS = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """Spans that one worker reads, one after the other.

    Usually they are packed into one shard. Where the text turns out to be larger than was known (a
    compressed file), it is cut while it is read, into several.
    """

    number: int
    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        """Bytes of text, as far as they are known."""
        return sum(span.size for span in self.spans)


def make_partitions(
    files: Sequence[InputFile], options: CorpusOptions, columns: Mapping[str, str]
) -> list[Partition]:
    """The partitions of the corpus, in input order."""
    of_files = each(
        lambda file: [*_spans(file, options, columns)], files, at_once=_are_in_stores(files)
    )
    spans = chain.from_iterable(of_files)
    partitions = list(_grouped(spans, options.partition_bytes))
    if len(partitions) > MAX_PARTITIONS:
        raise InvalidOption(
            f"partition_size={options.partition_size} cuts the corpus into {len(partitions)} "
            f"partitions, more than {MAX_PARTITIONS}; raise it"
        )
    return partitions


def first_partitions(
    files: Sequence[InputFile], options: CorpusOptions, columns: Mapping[str, str]
) -> Iterator[Partition]:
    """The same partitions one by one: nothing is read of what comes behind the last one taken."""
    spans = (span for file in files for span in _spans(file, options, columns))
    return _grouped(spans, options.partition_bytes)


def text_size(
    files: Sequence[InputFile], options: CorpusOptions, columns: Mapping[str, str]
) -> int:
    """Bytes of text in all files, as far as they are known before it is read."""
    names = wanted_names(options, columns)
    return sum(each(lambda file: _size(file, names), files, at_once=_are_in_stores(files)))


def _size(file: InputFile, names: list[str]) -> int:
    if file.kind in ("parquet", "arrow"):
        return sum(size for _, size in table_chunks(file, names))
    return file.size if file.kind in ("jsonl", "txt") else _SHRUNK * file.size


def _are_in_stores(files: Sequence[InputFile]) -> bool:
    return any(isinstance(file.path, RemotePath) for file in files)


def _grouped(spans: Iterable[Span], limit: int) -> Iterator[Partition]:
    number, held = 0, 0
    group: list[Span] = []
    for span in spans:
        if group and held + span.size > limit:
            yield Partition(number=number, spans=tuple(group))
            number, held = number + 1, 0
            group = []
        group.append(span)
        held += span.size
    yield Partition(number=number, spans=tuple(group))


def _spans(file: InputFile, options: CorpusOptions, columns: Mapping[str, str]) -> Iterator[Span]:
    if file.kind == "jsonl":
        with file.errors_of_reading():
            yield from _line_spans(file, options.partition_bytes)
    elif file.kind in ("parquet", "arrow"):
        names = wanted_names(options, columns)
        yield from _row_spans(file, table_chunks(file, names), options.partition_bytes)
    else:
        yield Span(file=file.number, start=0, stop=None, first_record=0, size=_size(file, []))


def _line_spans(file: InputFile, limit: int) -> Iterator[Span]:
    """Spans of equal size that start with a line; only a file of several is read for that."""
    count = max(1, -(-file.size // limit))
    targets = (file.size * part // count for part in range(1, count))
    edges = chain([(0, 0)], line_starts(file.path, targets), [(file.size, 0)])
    for (start, record), (stop, _) in pairwise(edges):
        if start < stop or count == 1:
            yield Span(
                file=file.number, start=start, stop=stop, first_record=record, size=stop - start
            )


def _row_spans(file: InputFile, chunks: Sequence[tuple[int, int]], limit: int) -> Iterator[Span]:
    """Every chunk is a span, or several of equally many rows if it is too large."""
    first = 0
    for rows, size in chunks:
        count = max(1, min(rows, -(-size // limit)))
        edges = [first + rows * part // count for part in range(count + 1)]
        for start, stop in pairwise(edges):
            yield Span(
                file=file.number, start=start, stop=stop, first_record=start, size=size // count
            )
        first += rows
