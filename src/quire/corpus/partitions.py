"""Partitions of a corpus: cut by the order and size of its text, never by the number of workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from quire.corpus.corpus import Corpus
from quire.corpus.inputs import of_each, read_errors
from quire.errors import InvalidOption
from quire.formats.files import InputFile
from quire.formats.format import Span
from quire.options.names import setting

MAX_PARTITIONS = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """Spans that one worker reads in order.

    Usually they are packed into one shard. If the text turns out to be larger than expected (in a
    compressed file), it is cut into several shards while it is read.
    """

    number: int
    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        """Bytes of text, as far as they are known."""
        return sum(span.size for span in self.spans)


def make_partitions(corpus: Corpus) -> list[Partition]:
    """The partitions of the corpus, in input order."""
    spans = of_each(corpus.files, lambda file: [*_spans(corpus, file)])
    partitions = list(_grouped(chain.from_iterable(spans), corpus.options.partition_bytes))
    if len(partitions) > MAX_PARTITIONS:
        raise InvalidOption(
            f"{setting('partition_size', corpus.options.partition_size)} cuts the corpus into "
            f"{len(partitions)} partitions, more than {MAX_PARTITIONS}; raise it"
        )
    return partitions


def first_partitions(corpus: Corpus) -> Iterator[Partition]:
    """The same partitions one by one; files after the last one taken are not read."""
    spans = (span for file in corpus.files for span in _spans(corpus, file))
    return _grouped(spans, corpus.options.partition_bytes)


def text_size(corpus: Corpus) -> int:
    """Bytes of text in all files, as far as they are known before reading."""
    fields = corpus.fields
    return sum(
        of_each(corpus.files, lambda file: file.format.text_size(file, file.own_fields(fields)))
    )


def _grouped(spans: Iterable[Span], limit: int) -> Iterator[Partition]:
    number, size = 0, 0
    group: list[Span] = []
    for span in spans:
        if group and size + span.size > limit:
            yield Partition(number=number, spans=tuple(group))
            number, size = number + 1, 0
            group = []
        group.append(span)
        size += span.size
    yield Partition(number=number, spans=tuple(group))


def _spans(corpus: Corpus, file: InputFile) -> Iterator[Span]:
    fields, size = corpus.fields, corpus.options.partition_bytes
    with read_errors(file):
        yield from file.format.spans(file, file.own_fields(fields), size)
