"""A corpus cut into partitions: by the order and size of its text, never by who does the work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from quire.corpus.inputs import fields_to_read, read_errors
from quire.corpus.options import CorpusOptions
from quire.errors import InvalidOption
from quire.formats.files import InputFile
from quire.formats.format import Span
from quire.storage import RemotePath, each

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
    fields = fields_to_read(options, columns)
    in_stores = _are_in_stores(files)
    return sum(each(lambda file: file.format.text_size(file, fields), files, at_once=in_stores))


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
    with read_errors(file):
        yield from file.format.spans(
            file, fields_to_read(options, columns), options.partition_bytes
        )
